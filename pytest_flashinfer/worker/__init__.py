"""Floor worker: the processes that run kernels; knows nothing of reference outputs and tolerances."""
