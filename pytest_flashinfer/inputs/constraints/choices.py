"""Floats of which constraints allow a few values only, as a mask of zeros and ones or a table of signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.elements import may_change
from pytest_flashinfer.inputs.constraints.equation import evaluated
from pytest_flashinfer.inputs.dtypes import is_float

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
        x, allowed = env.get(name), [evaluated(tree, env) for tree in trees]
        fits = name in names and is_float(contract.dtype(name)) and may_change(contract, plan, name)
        if not fits or not isinstance(x, torch.Tensor) or not all(isinstance(n, (int, float)) for n in allowed):
            continue
        wide, values = x.float(), torch.tensor(allowed, dtype=torch.float32, device=x.device)
        wrong = torch.ones_like(wide, dtype=torch.bool)
        for value in values:
            wrong &= wide != value
        if bool(wrong.any()):
            way = (wide.view(torch.int32).to(torch.int64) * _MIX >> 16) % len(values)
            x.copy_(torch.where(wrong, values[way], wide))
            changed.add(name)
    return changed
