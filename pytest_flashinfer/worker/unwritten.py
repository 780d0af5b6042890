"""Says in words which part of an output still holds its poison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_PART = 1 << 26  # elements
NOTHING = "never written"


def describe(mask: torch.Tensor) -> str:
    """Describe the true elements of a bool mask in the shape of the output: `last row never written`."""
    count, total = count_true(mask), mask.numel()
    if count == total:
        return NOTHING
    if mask.dim() > 1:
        for axis, word in ((0, "row"), (mask.dim() - 1, "column")):
            text = _edge(mask.transpose(0, axis).flatten(1), word, count)
            if text:
                return text
    at = int(mask.flatten().view(torch.uint8).argmax())  # on a card, nonzero takes no more than 2**31 elements
    first = list(index_of(at, mask.shape))
    if mask.dim() == 1 and bool(mask[total - count :].all()):
        return f"last {count} of {total} elements never written" if count > 1 else "last element never written"
    return f"{count} of {total} elements never written, first at {first}"


def statement(output: str, part: str) -> str:
    """Say in one line what it means that a part of an output, as `describe` says it, is poison."""
    return f"output {output!r}: {part}: the value that every output is filled with before a call is still there"


def index_of(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element by its number; `torch.unravel_index` imports sympy, a second's work."""
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


def count_true(mask: torch.Tensor) -> int:
    """Count in parts: a sum makes 64-bit integers of all elements first."""
    flat = mask.flatten()
    return sum(int(flat[start : start + _PART].sum()) for start in range(0, flat.numel(), _PART))


def any_equal(words: torch.Tensor, pattern: int) -> torch.Tensor:
    """Return a 0-d bool tensor, whether any word is `pattern`; in parts, nothing waited for."""
    words = words.view(-1) if words.is_contiguous() else words
    if words.numel() <= _PART:
        return (words == pattern).any()
    step = max(1, _PART // words[0].numel())
    return torch.stack([(part == pattern).any() for part in torch.split(words, step)]).any()


def _edge(slices: torch.Tensor, word: str, count: int) -> str:
    """Say so where exactly the last slices are whole and nothing else is."""
    number, size = slices.shape
    whole = count // size if size else 0
    if not whole or whole * size != count or not bool(slices[number - whole :].all()):
        return ""
    return f"last {word} never written" if whole == 1 else f"last {whole} of {number} {word}s never written"
