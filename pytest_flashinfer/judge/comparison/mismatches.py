"""Where the misses of a comparison lie, in words: the shape of a failure is often its diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.worker.unwritten import count_true

if TYPE_CHECKING:
    import torch

_MANY = 2 / 3  # misses spread over more than this share of an axis say nothing about that axis


def describe(bad: torch.Tensor) -> str:
    """Return one line about the places where `bad` (bool, any shape) is true; empty where there is nothing to say."""
    total = count_true(bad)
    if total == 0 or bad.ndim == 0:
        return ""
    if total == bad.numel():
        return "all elements miss" if total > 1 else ""
    found = [text for axis in range(bad.ndim) if (text := _along(bad, axis))]
    return "all misses in " + ", ".join(found[:3]) if found else ""


def _along(bad: torch.Tensor, axis: int) -> str:
    """Describe one axis where the misses fill a run, a stride or a few indices of it."""
    size = bad.shape[axis]
    others = [i for i in range(bad.ndim) if i != axis]
    hit = bad.any(dim=others) if others else bad
    places = hit.nonzero().flatten().tolist()
    if size == 1 or len(places) > _MANY * size:
        return ""
    whole = bool(bad.index_select(axis, hit.nonzero().flatten()).all())
    noun = _noun(bad.ndim, axis)
    first, last = places[0], places[-1]
    kind = "whole " if whole and bad.ndim > 1 else ""
    if len(places) == 1:
        edge = " (the last)" if last == size - 1 else ""
        return f"{kind}{noun} {first} of {size}{edge}"
    if last - first + 1 == len(places):
        edge = "the last " if last == size - 1 else "the first " if first == 0 else ""
        return f"{edge}{len(places)} {kind}{noun}s ({first}..{last} of {size})"
    step = places[1] - first
    if len(places) > 2 and places == list(range(first, last + 1, step)):  # noqa: PLR2004 - two places make no pattern
        return f"every {_ordinal(step)} {kind}{noun} from {first} (of {size})"
    if len(places) <= 4:  # noqa: PLR2004 - as many as fit a line
        return f"{kind}{noun}s {', '.join(map(str, places))} of {size}"
    return ""


def _noun(ndim: int, axis: int) -> str:
    if ndim == 1:
        return "element"
    if axis == ndim - 1:
        return "column"
    return "row" if ndim == 2 else f"index of axis {axis}"  # noqa: PLR2004 - a matrix


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
