"""Families of values with a pattern that random ones never have, and that a kernel may take for another case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.floats.draws import Draw

_ROWS: Final = 61  # different ones, after which they come again; a prime
_STEP: Final = 7  # how many of these the next entry of a further axis is away, each time
_DEEP: Final = (2e4, 1e5)  # below zero; half the range of 16 bits at most
_HALF: Final = 0.6  # how often a row ends in the middle rather than anywhere


def _chance(x: torch.Tensor, draw: Draw) -> float:
    """Return a number from 0 to 1, the same one for all tensors of a recipe."""
    return float(torch.rand((), device=x.device, generator=draw.rows))


def sorted_rows(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that rise, rows that fall, or some of each."""
    share = (0.0, 0.5, 1.0)[min(2, int(3 * _chance(x, draw)))]
    rising = x.normal_(generator=draw.own).sort(dim=1).values
    falls = torch.rand((len(x), 1), device=x.device, generator=draw.rows) < share
    x.copy_(torch.where(falls, rising.flip(1), rising))


def equal(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that are the same at the same places of all tensors with rows as long, as in `a @ a.T`."""
    rows = torch.empty((_ROWS, x.shape[1]), dtype=torch.float32, device=x.device).normal_(generator=draw.rows)
    left, places = torch.arange(len(x), device=x.device), torch.zeros(len(x), dtype=torch.int64, device=x.device)
    for axis, count in reversed([*enumerate(draw.shape)]):
        places += left % count * _STEP**axis
        left //= count
    x.copy_(rows[places % _ROWS])


def half_zero(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that are zero from their middle on, as padded ones are, in some draws from another place on."""
    x.normal_(generator=draw.own)
    middle, anywhere = _chance(x, draw) < _HALF, _chance(x, draw)
    width = x.shape[1]
    x[:, max(1, width // 2 if middle else int(anywhere * width)) :] = 0


def repeated(x: torch.Tensor, draw: Draw) -> None:
    """Make rows whose second half is the first one again."""
    x.normal_(generator=draw.own)
    half = x.shape[1] // 2
    x[:, half : 2 * half] = x[:, :half]


def deep(x: torch.Tensor, draw: Draw) -> None:
    """Put all values below -1e4, which a kernel may take for minus infinity, and above -1e6, which many do.

    All, for the scores of a row need not lie along the last axis; in steps that the dtype can tell.
    """
    most = min(_DEEP[1], 2.0 ** (draw.limit - 1))
    least = min(_DEEP[0], most)
    depth = least + (most - least) * _chance(x, draw)
    x.normal_(generator=draw.own).mul_(max(8.0, 4 * depth * torch.finfo(x.dtype).eps)).sub_(depth)
