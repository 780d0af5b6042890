"""Drawn integers put right where a constraint does not hold."""
