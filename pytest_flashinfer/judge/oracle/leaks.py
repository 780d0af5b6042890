"""NaN and infinities that show where inputs must not get to: judged is what they do not reach in the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.judge.oracle.truth import Truth, without_nan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.judge.oracle.truth import OutputTruth
    from pytest_flashinfer.judge.reference.origin import ReferenceFailed
    from pytest_flashinfer.worker.case import Case

_ANYWHERE = ("nan", "inf")  # families that put them where some output is made of them
_FINITE = (0.0, 1.0)  # what is put in their place


def of_what_they_do_not_reach(truth: Truth, case: Case, native: Callable[[Case], Truth | ReferenceFailed]) -> Truth:
    """Return a truth that leaves open what depends on values that are not finite, whatever the reference has there.

    That is what it has NaN for, and what is another value once finite numbers are in their place: integers and
    exponents that are made of NaN are no answer. Slots that nobody reads reach nothing. `native` runs the reference as
    it stands.
    """
    found = without_nan(truth)
    for number in _FINITE if case.recipe.family in _ANYWHERE else ():
        other = native(case.with_values({name: _filled(x, number) for name, x in case.values.items()}, f"all {number}"))
        if isinstance(other, Truth):
            found = replace(found, outputs={name: _agreed(found, other, name) for name in found.outputs})
    return found


def _filled(value: object, number: float) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize == 1:
        return value
    return value.where(value.isfinite(), number)


def _comparable(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8) if x.itemsize == 1 else x


def _agreed(truth: Truth, other: Truth, name: str) -> OutputTruth:
    """Return an output that is undecided where another run of the reference has something else."""
    output, native = truth.outputs[name], other.outputs[name].native
    if output.native is None or native is None or output.native.shape != native.shape:
        return output
    apart = _comparable(output.native) != _comparable(native.to(output.native.device))
    return replace(output, undecided=apart if output.undecided is None else output.undecided | apart)
