"""How numbers stand in texts: ratios, and counts with their word."""

from __future__ import annotations

import math


def times(ratio: float, digits: int = 2) -> str:
    """Return a ratio with two decimals, with more where a small one would else have fewer than `digits` digits."""
    places = digits - 1 - math.floor(math.log10(ratio)) if 0 < ratio < 1 else 2
    return f"{ratio:.{max(2, places)}f}"


def count(number: int, word: str) -> str:
    """Return how many there are of what a word names."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
