"""Numbers of which constraints allow a few values only, as a mask of zeros and ones or a table of signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.elements import may_change
from pytest_flashinfer.inputs.constraints.equation import evaluated
from pytest_flashinfer.inputs.dtypes import as_numbers
from pytest_flashinfer.inputs.roles.packed_integers import BYTE_KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_MIX: Final = 2654435761  # spreads the bits of a float: neighbours take values of their own


def choose(contract: Contract, plan: Plan, env: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Give elements of the tensors `names` one of the values that constraints allow, in place; return what changed.

    Which one follows from the element: what was equal stays equal.
    """
    changed: set[str] = set()
    for name, trees in contract.reading.facts.choices.items():
        x = env.get(name)
        if name not in names or not isinstance(x, torch.Tensor) or not _may_take(contract, plan, name):
            continue
        wide = x.float() if x.is_floating_point() else as_numbers(x).to(torch.int64)
        values = _allowed([evaluated(tree, env) for tree in trees], x, wide)
        wrong = torch.ones_like(wide, dtype=torch.bool)
        for value in values:
            wrong &= wide != value
        if len(values) and bool(wrong.any()):
            bits = wide.view(torch.int32).to(torch.int64) if wide.is_floating_point() else wide
            x.copy_(torch.where(wrong, values[(bits * _MIX >> 16) % len(values)], wide))
            changed.add(name)
    return changed


def _allowed(values: list[Any], x: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """Return those of the values that a tensor can hold; none where one of them is not known."""
    if not all(isinstance(value, (int, float)) for value in values):
        values = []
    elif not x.is_floating_point():
        ends = torch.iinfo(x.dtype)
        values = [value for value in values if float(value).is_integer() and ends.min <= value <= ends.max]
    return torch.tensor(values, dtype=wide.dtype, device=x.device)


def _may_take(contract: Contract, plan: Plan, name: str) -> bool:
    is_bytes = name in plan.roles and plan.roles[name].kind in BYTE_KINDS
    return contract.dtype(name) != "bool" and (is_bytes or may_change(contract, plan, name))
