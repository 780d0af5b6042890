"""The commands of `python -m pytest_flashinfer`. They read and write files, run nothing of them and need no torch."""
