"""Sizes of axes: solved, listed as edges, drawn, and made smaller."""
