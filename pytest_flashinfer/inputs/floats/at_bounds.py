"""Floats at the very bounds that constraints allow: `top_p >= 0` means that 0 occurs, which hardly a draw hits."""

from __future__ import annotations

import ast
import re
from random import Random
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.elements import limits_of, may_change
from pytest_flashinfer.inputs.constraints.trees import constant
from pytest_flashinfer.inputs.dtypes import is_float
from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.recipe import Recipe

_ZERO: Final = re.compile(
    r"\b(zero|0) or (positive|negative|greater|more|less)|\b(may|can) (also )?be (zero|0)\b|non-?negative"
    r"|(?<!no )\b(zeros?|0) (and \w+ (\w+ )?)?((is|are) )?(included|allowed|valid|possible)\b|\bincluding (zeros?|0)\b"
)
_ONE_IN: Final = 3  # cases: a reference may fail at a bound, and others have to tell of the rest


def touch(contract: Contract, plan: Plan, env: dict[str, Any], names: AbstractSet[str], recipe: Recipe) -> None:
    """Put one element of each float tensor of `names` at one of its bounds, in place, in one case of several.

    The plain family, which listed workloads have, stays away from them, nobody asks there whether that is fair; but for
    zeros of which a text says that they occur.
    """
    if way_of(recipe.seed, "bounds", _ONE_IN):
        return
    for name in names & contract.dims.keys():
        x = env.get(name)
        if not isinstance(x, torch.Tensor) or not x.numel() or not is_float(contract.dtype(name)):
            continue
        ends = [] if recipe.family == "normal" else list(_ends(contract, name))
        ends += [0.0] if _ZERO.search((contract.definition.inputs[name].description or "").lower()) else []
        ends = [end for end in ends if float(torch.tensor(end).to(x.dtype)) == end]
        if ends and may_change(contract, plan, name):
            rng = Random(f"{recipe.seed}/{name}/bounds")  # noqa: S311 - not for secrets
            x.view(-1)[rng.randrange(x.numel())] = rng.choice(ends)


def _ends(contract: Contract, name: str) -> Iterator[float]:
    """Yield the numbers that bound all elements of a tensor, and that are in its range."""
    for limit in limits_of(contract):
        value = constant(limit.value)
        whole = isinstance(limit.part, ast.Name) and limit.op in (ast.GtE, ast.LtE)
        if limit.name == name and whole and isinstance(value, (int, float)) and not isinstance(value, bool):
            yield float(value)
