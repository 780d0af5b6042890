"""What the constraints of a definition say of sizes and of data."""
