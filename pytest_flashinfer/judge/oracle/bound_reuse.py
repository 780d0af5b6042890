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

LENT = "native, with the bound of another call's contents"
_MARGIN = 4.0


@dataclass(frozen=True)
class Terms:
    """What an output lends: its `largest` bound, and the `usual` one beside the size of a row.

    What overflows or is undecided has a bound that lets anything pass, and so has a loud row for a quiet one: neither
    counts.
    """

    largest: float
    usual: float | None


@dataclass(frozen=True)
class Facts:
    """What some rows of an output, or its one row, say of what it lends: `allowed` and `sizes` [rows, 1], `any` 0-d.

    `one_row`: the elements of an output that is one row, else 0. Nothing was waited for.
    """

    any: torch.Tensor
    allowed: torch.Tensor
    sizes: torch.Tensor
    one_row: int


def terms(lender: OutputTruth) -> Terms | None:
    """Return what an output lends, or `None` where it has no bound to lend. Asked once: it waits for the device."""
    return joined([facts(lender)])


def facts(lender: OutputTruth) -> Facts | None:
    """Return what is to be known of all rows of an output, or of some of them."""
    if lender.native is None or lender.allowance is None:
        return None
    native = _readable(lender.native)
    counts = native.isfinite() if lender.undecided is None else native.isfinite() & ~lender.undecided
    allowed = rows(lender.allowance.masked_fill(~counts, 0.0))
    if allowed.shape[1]:
        allowed = allowed.amax(dim=1, keepdim=True)
    one_row = native.numel() if native.ndim < 2 or native.shape[-1] == 1 else 0  # noqa: PLR2004 - a matrix
    return Facts(counts.any(), allowed.to(torch.float64), _sizes(native), one_row)


def joined(parts: Sequence[Facts | None]) -> Terms | None:
    """Return what an output lends of whose rows, some after the other, the facts are known.

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
    loud = sizes > 0
    return Terms(float(allowed.max()), float((allowed / sizes)[loud].median()) if bool(loud.any()) else None)


def lent(output: OutputTruth, lends: Terms | None) -> OutputTruth:
    """Return an output with the lender's largest bound, but no more of each row than is usual for the lender's rows."""
    if output.native is None or not output.native.numel() or lends is None:
        return output
    here = _sizes(_readable(output.native))
    most = lends.largest
    bound = torch.full_like(here, most) if lends.usual is None else (lends.usual * here).clamp(max=most)
    bound = _MARGIN * bound + FLUSH
    if output.dtype != "float64":
        bound = bound.to(torch.float32)  # there is one for each element in the end
    return replace(output, allowance=bound.expand(rows(output.native).shape).reshape(output.native.shape), how=LENT)


def _readable(value: torch.Tensor) -> torch.Tensor:
    """Return 8-bit floats as float32: torch does not say which of them are finite."""
    return value.to(torch.float32) if is_narrow(value.dtype) else value


def _sizes(value: torch.Tensor) -> torch.Tensor:
    """Return the root mean squares [rows, 1] of the rows, without what is not finite."""
    finite = rows(torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
    norms: torch.Tensor = torch.linalg.vector_norm(finite, dim=1, keepdim=True, dtype=torch.float64)
    return norms / math.sqrt(max(finite.shape[1], 1))
