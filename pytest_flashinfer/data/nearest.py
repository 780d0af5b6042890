"""The name that was meant: a hint for a slip of the pen, and no search where a stranger gave too much to search."""

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALIKE = 0.8  # for a key that may be any: as like as a word of five is with two letters in each other's place
_MOST_NAMES = 500
_LONGEST = 100  # characters: comparing takes the product of two lengths
_TIES = 5  # names that may be as similar as one another: the one that begins most like the word is meant


def nearest(word: str, words: Iterable[str], alike: float = 0.6) -> str | None:
    """Return the most similar of some words, or `None`: also for many words or a long one, where it would take long."""
    short = [other for other in words if len(other) <= _LONGEST]
    if len(word) > _LONGEST or len(short) > _MOST_NAMES:
        return None
    found = get_close_matches(word, short, _TIES, alike)
    likeness = [SequenceMatcher(None, other, word).ratio() for other in found]
    best = [other for other, ratio in zip(found, likeness, strict=True) if ratio == likeness[0]]
    return max(best, key=lambda other: sum(takewhile(bool, map(eq, other, word))), default=None)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Name the most similar of some words, as the end of a message; empty where none is similar."""
    near = nearest(word, words)
    return f"; did you mean {near!r}?" if near else ""


def none_of(word: str, words: Sequence[str]) -> str:
    """Say that a word is none of those that are allowed, and which one may have been meant."""
    return f"{word!r} is none of {', '.join(words)}{did_you_mean(word.lower(), words)}"
