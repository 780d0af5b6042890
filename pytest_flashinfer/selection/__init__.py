"""Which definitions, solutions and workloads a run has, and what it leaves out."""
