"""The least and the greatest value that constraints and descriptions allow, and what is just inside a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.dtypes import torch_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.contract import Contract

# How far from a bound is just inside it: a step that the dtype can tell.
_STEP: Final = {"bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
_FINE: Final = 2.0**-10


def limits(contract: Contract, name: str, env: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the least and the greatest integer that a tensor may hold; `None` where nothing known says so."""
    bound = contract.reading.facts.bounds.get(name)
    if bound is None:
        return None, None
    lower = [n for tree in bound.lower if (n := size(tree, env)) is not None]
    upper = [n for tree in bound.upper if (n := size(tree, env)) is not None]
    return max(lower, default=None), min(upper, default=None)


def readable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs as constraints read them: tensors of integers on the CPU."""
    moved = {n: v.to("cpu") for n, v in values.items() if isinstance(v, torch.Tensor) and not v.is_floating_point()}
    return {**values, **moved}


def just_inside(dtype: str, bound: float, sign: int, span: float) -> float:
    """Return the value that is a step above (`sign` 1) or below a bound of floats that lie within `span`."""
    fine = _STEP.get(dtype, _FINE) * min(max(1.0, abs(bound)), abs(span))
    return bound + sign * max(fine, abs(bound) * torch.finfo(torch_dtype(dtype)).eps)
