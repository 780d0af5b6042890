"""Says in words which part of an output still holds its poison."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def describe(mask: torch.Tensor) -> str:
    """Describe the true elements of a bool mask in the shape of the output: `last row never written`."""
    count, total = int(mask.sum()), mask.numel()
    if count == total:
        return "never written"
    if mask.dim() > 1:
        for axis, word in ((0, "row"), (mask.dim() - 1, "column")):
            text = _edge(mask.transpose(0, axis).flatten(1), word, count)
            if text:
                return text
    first = mask.nonzero()[0].tolist()
    if mask.dim() == 1 and bool(mask[total - count :].all()):
        return f"last {count} of {total} elements never written" if count > 1 else "last element never written"
    return f"{count} of {total} elements never written, first at {first}"


def _edge(slices: torch.Tensor, word: str, count: int) -> str:
    """Say so where exactly the last slices are whole and nothing else is."""
    number, size = slices.shape
    whole = count // size if size else 0
    if not whole or whole * size != count or not bool(slices[number - whole :].all()):
        return ""
    return f"last {word} never written" if whole == 1 else f"last {whole} of {number} {word}s never written"
