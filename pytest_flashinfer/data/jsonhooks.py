"""What the C parser of JSON lets pass: repeated keys, NaN, numbers beyond a float or a size, too many values."""

from __future__ import annotations

import math
from typing import Any

from pytest_flashinfer.data.extent import MAX_PARTS

MAX_DIGITS = 100  # of an integer; a longer one is no size of anything, and reading it takes quadratic time


class TooManyError(Exception):
    """The parser has seen more values than a document may have: reading on would only take time."""


class Reading:
    """Hooks of the C parser that notice what it lets pass: repeated keys, NaN, numbers beyond a float or a size."""

    def __init__(self) -> None:
        self.repeated = False
        self.odd = False
        self.seen = 0  # members, repeated ones too, and numbers: what the parser tells of

    def count(self, number: int = 1) -> None:
        """Count values; raises TooManyError."""
        self.seen += number
        if self.seen > 2 * MAX_PARTS:  # a member that is a number counts twice
            raise TooManyError

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Make an object of its members."""
        result = dict(pairs)
        self.count(len(pairs))
        self.repeated |= len(result) != len(pairs)
        return result

    def constant(self, text: str) -> float:
        """Read NaN or an infinity."""
        self.odd = True
        self.count()
        return float(text)

    def number(self, text: str) -> float:
        """Read a number with a fraction or an exponent."""
        self.count()
        value = float(text)
        self.odd |= not math.isfinite(value)
        return value

    def integer(self, text: str) -> int | float:
        """Read a whole number; one that is too long is infinite."""
        self.count()
        if len(text) > MAX_DIGITS:
            self.odd = True
            return math.inf
        return int(text)
