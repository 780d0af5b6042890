"""Outputs against the truth."""
