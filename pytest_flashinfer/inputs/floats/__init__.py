"""Contents of floating-point tensors."""
