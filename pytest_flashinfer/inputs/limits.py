"""The least and the greatest value that constraints and descriptions allow in a tensor, and floats moved to between."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.data.evaluate import run
from pytest_flashinfer.inputs.dtypes import largest, torch_dtype
from pytest_flashinfer.inputs.equation import size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.contract import Contract

_CHUNK: Final = 1 << 24
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


def within(contract: Contract, name: str, env: Mapping[str, Any], values: torch.Tensor) -> torch.Tensor:
    """Return a float tensor with its values between the bounds that constraints set, in place.

    What is outside is mirrored at the bound that it is beyond, so that equal values stay equal and others differ.
    """
    dtype = contract.dtype(name)
    low, high, lowest, highest = _float_limits(contract, name, env, dtype)
    if (low, high) == (-math.inf, math.inf) or low > high or lowest > highest:
        return values
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    most, flat = largest(values.dtype), values.view(-1)
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK]
        was = part.to(wide)
        inside = ((was > low) | (was == lowest)) & ((was < high) | (was == highest))
        moved = _mirrored(was, low, high).clamp(max(low, -most), min(high, most)).to(values.dtype).to(wide)
        moved = torch.where(moved <= low, lowest, torch.where(moved >= high, highest, moved))
        part.copy_(torch.where(inside, was, moved))
    return values


def _mirrored(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    if low == -math.inf:
        return torch.where(values > high, 2 * high - values, values)
    if high == math.inf:
        return torch.where(values < low, 2 * low - values, values)
    span = high - low
    place = (values - low).remainder(2 * span) if span else torch.zeros_like(values)
    return low + torch.where(place > span, 2 * span - place, place)


def _float_limits(
    contract: Contract, name: str, env: Mapping[str, Any], dtype: str
) -> tuple[float, float, float, float]:  # fmt: skip
    """Return the bounds, as the dtype has them, and the least and the greatest value that they allow."""
    lower: list[tuple[float, bool]] = []
    upper: list[tuple[float, bool]] = []
    for op, tree in contract.reading.facts.compared.get(name, ()):
        exact = _number(tree, env)
        value = math.inf if exact is None else float(torch.tensor(exact, dtype=torch.float64).to(torch_dtype(dtype)))
        if math.isfinite(value):
            # A bound that the dtype has not may be compared with in another one.
            open_ = op in {ast.Gt, ast.Lt} or (op is not ast.Eq and value != exact)
            lower += [(value, open_)] if op in {ast.Gt, ast.GtE, ast.Eq} else []
            upper += [(value, not open_)] if op in {ast.Lt, ast.LtE, ast.Eq} else []
    low, above = max(lower, default=(-math.inf, False))
    high, reached = min(upper, default=(math.inf, True))
    span = high - low if math.isfinite(high - low) else 1.0
    lowest = just_inside(dtype, low, 1, span) if above else low
    return low, high, lowest, high if reached else just_inside(dtype, high, -1, span)


def _number(tree: ast.expr, env: Mapping[str, Any]) -> float | None:
    """Return the number that a tree gives, or `None`."""
    try:
        value = run(tree, env)
    except ConstraintError:
        return None
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else None
