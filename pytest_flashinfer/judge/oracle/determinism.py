"""Does a reference give the same results for the same inputs? One that does not says of no kernel what is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.judge.floats import is_float, is_packed, name_of
from pytest_flashinfer.judge.oracle import bound
from pytest_flashinfer.judge.oracle.evaluate import working_dtype
from pytest_flashinfer.judge.reference.call import InvalidReferenceError
from pytest_flashinfer.worker.unwritten import index_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth
    from pytest_flashinfer.judge.reference.call import Reference

_APART = 16  # times the bound by dtype: what changes from run to run widens those that are computed as well


class OtherResultsError(InvalidReferenceError):
    """A reference that was run again has given something else."""


def demand_the_same(run: Reference, truth: Truth) -> None:
    """Run a reference again and hold it to what it gave before. Raises OtherResultsError.

    It may round otherwise, for atomics add up in any order: with 16-bit inputs or outputs, in that dtype.
    """
    working = working_dtype(run)
    for name, again in run.native().items():
        output = truth.outputs[name]
        if again is None or output.native is None or not output.native.numel() or again.shape != output.native.shape:
            continue
        other = _other(output, again, {output.dtype, name_of(working or torch.float32)}).reshape(-1)
        if bool(other.any()):
            at = int(other.to(torch.uint8).argmax())
            index = index_of(at, output.native.shape)
            spot = f"{name}[{', '.join(map(str, index))}]" if index else name
            values = " and then ".join(f"{each.reshape(-1)[at].item():.7g}" for each in (output.native, again))
            raise OtherResultsError(f"the reference gives other results for the same inputs: {spot} is {values}")


def _other(output: OutputTruth, again: torch.Tensor, dtypes: Collection[str]) -> torch.Tensor:
    """Return which elements are not the same, for all that rounding in `dtypes` may do."""
    native = output.native
    assert native is not None
    if not is_float(output.dtype) or is_packed(output.dtype):
        other = native != again
    else:
        first, second = native.to(torch.float64), again.to(torch.float64)
        limit = torch.stack([bound.table(native, dtype) for dtype in dtypes]).amax(0)
        alike = (first == second) | (first.isnan() & second.isnan())
        other = ~(alike | ((first - second).abs() <= _APART * limit))
    return other if output.undecided is None else other & ~output.undecided
