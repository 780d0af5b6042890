"""Floor judge: oracle, bound, comparison and verdict; knows nothing of pytest."""
