"""The bound of one case's outputs for other contents of the same sizes: finding one takes longer than all else."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.judge.floats import FLUSH, is_narrow
from pytest_flashinfer.judge.oracle.bound import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.judge.oracle.truth import OutputTruth

REUSED = "native, with the bound of another call's contents"
_MARGIN = 4.0


@dataclass(frozen=True)
class ReusableBound:
    """What of an output's bound is good for other contents: the `largest`, and the `usual` one beside a row's size.

    What overflows or is undecided has a bound that lets anything pass, and so has a large row for a small one: neither
    counts.
    """

    largest: float
    usual: float | None


@dataclass(frozen=True)
class RowBounds:
    """The bounds of some rows of an output, or of its one row: `allowed` and `sizes` [rows, 1], `any` 0-d.

    `one_row`: the elements of an output that is one row, else 0. Nothing was waited for.
    """

    any: torch.Tensor
    allowed: torch.Tensor
    sizes: torch.Tensor
    one_row: int


def reusable_bound(output: OutputTruth) -> ReusableBound | None:
    """Return what other contents may use, `None` where an output has no bound. Asked once: it waits for the device."""
    return joined([row_bounds(output)])


def row_bounds(output: OutputTruth) -> RowBounds | None:
    """Return what is to be known of all rows of an output, or of some of them."""
    if output.native is None or output.allowance is None:
        return None
    native = _readable(output.native)
    counts = native.isfinite() if output.undecided is None else native.isfinite() & ~output.undecided
    allowed = rows(output.allowance.masked_fill(~counts, 0.0))
    if allowed.shape[1]:
        allowed = allowed.amax(dim=1, keepdim=True)
    one_row = native.numel() if native.ndim < 2 or native.shape[-1] == 1 else 0  # noqa: PLR2004 - a matrix
    return RowBounds(counts.any(), allowed.to(torch.float64), _sizes(native), one_row)


def joined(parts: Sequence[RowBounds | None]) -> ReusableBound | None:
    """Return the reusable bound of an output of whose rows, some after the other, the bounds are known.

    They are put together on the host: a card takes longer to load its kernels for that than a host for two columns.
    """
    known = [each for each in parts if each is not None]
    if len(known) < len(parts) or not bool(torch.stack([each.any for each in known]).cpu().any()):
        return None
    allowed, sizes = (torch.cat(each).cpu() for each in ([x.allowed for x in known], [x.sizes for x in known]))
    if len(known) > 1 and known[0].one_row:
        weights = sizes.new_tensor([[each.one_row] for each in known])
        allowed = allowed.amax(dim=0, keepdim=True)
        sizes = ((sizes.square() * weights).sum(dim=0, keepdim=True) / weights.sum()).sqrt()
    some = sizes > 0
    return ReusableBound(float(allowed.max()), float((allowed / sizes)[some].median()) if bool(some.any()) else None)


def with_bound(output: OutputTruth, reused: ReusableBound | None) -> OutputTruth:
    """Return an output with another one's largest bound, but no more of each row than is usual for the rows there."""
    if output.native is None or not output.native.numel() or reused is None:
        return output
    here = _sizes(_readable(output.native))
    most = reused.largest
    bound = torch.full_like(here, most) if reused.usual is None else (reused.usual * here).clamp(max=most)
    bound = _MARGIN * bound + FLUSH
    if output.dtype != "float64":
        bound = bound.to(torch.float32)  # there is one for each element in the end
    return replace(output, allowance=bound.expand(rows(output.native).shape).reshape(output.native.shape), how=REUSED)


def _readable(value: torch.Tensor) -> torch.Tensor:
    """Return 8-bit floats as float32: torch does not say which of them are finite."""
    return value.to(torch.float32) if is_narrow(value.dtype) else value


def _sizes(value: torch.Tensor) -> torch.Tensor:
    """Return the root mean squares [rows, 1] of the rows, without what is not finite."""
    finite = rows(torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
    norms: torch.Tensor = torch.linalg.vector_norm(finite, dim=1, keepdim=True, dtype=torch.float64)
    return norms / math.sqrt(max(finite.shape[1], 1))
