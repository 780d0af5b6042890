"""Seeds that follow from others, and what a seed decides."""

from __future__ import annotations

import hashlib

SEEDS = 1 << 63  # how many there are; a kernel could try 2**32 until one gives the values that it sees


def derived(seed: int, purpose: str) -> int:
    """Return a seed that follows from another one and a purpose, and that tells nothing of it."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:8], "big") % SEEDS


def way_of(seed: int, purpose: str, ways: int) -> int:
    """Return which of so many ways, from 0, a seed takes: what it takes for one purpose tells nothing of another."""
    return derived(seed, purpose) % ways
