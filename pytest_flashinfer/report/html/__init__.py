"""The HTML report: one file that needs no network, from trace lines or from a finished run.

`rows` is what is known of each solution on each workload, `gather` reads that from trace files, `boards` ranks it,
`conversation` reads how a kernel came to be, `payload` packs all for the page's scripts, `page` writes the file.
"""
