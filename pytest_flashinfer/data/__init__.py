"""Floor data: definitions, workloads, solutions and traces as files; knows nothing of torch and pytest."""
