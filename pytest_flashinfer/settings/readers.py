"""Readers of option values: text to what it says."""

from __future__ import annotations

import argparse
import math

_FOREVER = 1e9  # seconds, of which the system can still wait for so many


class Unreadable(argparse.ArgumentTypeError, ValueError):  # noqa: N818 - says what is wrong with a value
    """A value of an option is not of its kind; the message says which kind that is."""


def seed(text: str) -> int:
    """Read a seed of 63 bits. Raises Unreadable."""
    return whole(text, 0, (1 << 63) - 1)


def shard(text: str) -> tuple[int, int]:
    """Read `K/N`. Raises Unreadable."""
    part, slash, parts = text.partition("/")
    if not slash:
        raise Unreadable(f"{text!r} is not of the form K/N, such as 1/4")
    try:
        total = whole(parts, 1)
        return whole(part, 1, total), total
    except Unreadable as error:
        raise Unreadable(f"{text!r}: {error}") from None


def count(text: str) -> int:
    """Read a whole number from 1 up. Raises Unreadable."""
    return whole(text, 1)


def whole(text: str, least: int, most: int | None = None) -> int:
    """Read a whole number between two bounds. Raises Unreadable."""
    try:
        value = int(text, 0)
    except ValueError:
        value = least - 1
    if value < least or (most is not None and value > most):
        raise Unreadable(f"{text!r} is no whole number from {least}" + (f" to {most}" if most is not None else " up"))
    return value


def seconds(text: str) -> float:
    """Read a duration. Raises Unreadable."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < _FOREVER:
        raise Unreadable(f"{text!r} is no number of seconds above 0 and below {_FOREVER:g}")
    return value
