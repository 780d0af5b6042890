"""Strides: the declared order of axes in memory, and rows that lie further apart than they are long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP: Final = 8  # entries between rows; a multiple of 8 keeps 16-byte loads of 16-bit values aligned
_GAPS: Final = 3  # sizes of them


def ordered(x: torch.Tensor, order: Sequence[int] | None) -> torch.Tensor:
    """Return the same tensor with its axes laid out in memory in this order, outermost first.

    Raises ValueError where `order` is not a permutation of the axes.
    """
    if order is None or list(order) == list(range(x.dim())):
        return x
    if sorted(order) != list(range(x.dim())):
        raise ValueError(f"dim_order {list(order)} is not a permutation of {x.dim()} axes")
    back = [list(order).index(axis) for axis in range(x.dim())]
    return x.permute(*order).contiguous().permute(*back)


def strided(x: torch.Tensor, number: int = 0) -> torch.Tensor:
    """Return the same values as a slice of a wider tensor, so that rows along the first axis have gaps between them.

    Tensors of another `number` have gaps of another size, up to a few: a kernel may take one's strides for another's.
    Every axis but the first stays as dense as it was: this is how a slice of a fused projection lies in memory. What
    lies in the gaps is NaN. Tensors of less than two axes or without elements, and those of integers and bools, are
    returned as they are.
    """
    if x.dim() < 2 or x.numel() == 0 or not x.is_floating_point():  # noqa: PLR2004 - rows and something in them
        return x
    gap = _GAP * (1 + number % _GAPS)
    wide = torch.empty((x.shape[0], x.shape[1] + gap, *x.shape[2:]), dtype=x.dtype, device=x.device)
    _poison(wide)
    part = wide[:, : x.shape[1]]
    part.copy_(x)
    return part


def _poison(x: torch.Tensor) -> None:
    if x.element_size() == 1:
        x.view(torch.uint8).fill_(0x7F)  # NaN in both 8-bit floats
    else:
        x.fill_(math.nan)


def like(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return `values`, or a copy of them, in other memory than `x` that has its strides, gaps included."""
    if values.stride() == x.stride() and values.data_ptr() != x.data_ptr():
        return values
    extent = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True) if n)
    flat = torch.empty(extent, dtype=x.dtype, device=x.device)
    if x.is_floating_point():
        _poison(flat)
    out = flat.as_strided(x.shape, x.stride())
    out.copy_(values)
    return out
