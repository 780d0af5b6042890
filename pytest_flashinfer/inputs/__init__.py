"""Floor inputs: axis sizes and tensors that satisfy a definition; knows nothing of solutions and pytest items."""
