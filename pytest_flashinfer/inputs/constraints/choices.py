"""Numbers of which constraints allow a few values only, as a mask of zeros and ones or a table of signs.

What they allow is read from `(x == 0) | (x == 1)`, and found by trying where they say else of single elements, as
`x * (1 - x) == 0` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.elements import may_change
from pytest_flashinfer.inputs.constraints.equation import evaluated
from pytest_flashinfer.inputs.constraints.trees import positive, stripped
from pytest_flashinfer.inputs.dtypes import as_numbers
from pytest_flashinfer.inputs.roles.packed_integers import BYTE_KINDS

if TYPE_CHECKING:
    import ast
    from collections.abc import Collection, Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_MIX: Final = 2654435761  # spreads the bits of a float: neighbours take values of their own
_PARTS: Final = (0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2.5)
_TRIED: Final = (*range(-16, 33), *_PARTS, *(-part for part in _PARTS), 64, 100, 127, 128, 255, 256, -64, -127, -128)
_LARGE: Final = 1 << 22  # elements of which nothing is tried


def choose(contract: Contract, plan: Plan, env: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Give elements of the tensors `names` one of the values that constraints allow, in place; return what changed.

    Which one follows from the element: what was equal stays equal.
    """
    changed: set[str] = set()
    for name, trees in contract.reading.facts.choices.items():
        x = env.get(name)
        if name not in names or not isinstance(x, torch.Tensor) or not _may_take(contract, plan, name):
            continue
        wide = _wide(x)
        values = _allowed([evaluated(tree, env) for tree in trees], x, wide)
        wrong = torch.ones_like(wide, dtype=torch.bool)
        for value in values:
            wrong &= wide != value
        if _put(x, wide, wrong, values):
            changed.add(name)
    return changed | {name for name in names if _may_take(contract, plan, name) and _try(contract, env, name)}


def _try(contract: Contract, env: Mapping[str, Any], name: str) -> bool:
    """Put numbers that do in place of elements for which a constraint on each of them does not hold; say if any are."""
    x = env.get(name)
    if not isinstance(x, torch.Tensor) or not 0 < x.numel() <= _LARGE:
        return False
    told = (stripped(positive(rule.tree)) for rule in contract.reading.data if _is_of(rule.names, env, name))
    rules = [(tree, held) for tree in told if (held := _of_each(tree, env, x)) is not None]
    if all(bool(held.all()) for _, held in rules):
        return False
    possible = _allowed([*_TRIED], x, wide := _wide(x))
    trees = [tree for tree, _ in rules]
    values = possible[[_is_allowed(trees, env, name, value) for value in possible.tolist()]]
    wrong = torch.zeros_like(wide, dtype=torch.bool)
    for _, held in rules:
        wrong |= ~held
    return _put(x, wide, wrong, values)


def _is_of(names: Collection[str], env: Mapping[str, Any], name: str) -> bool:
    """Say whether `name` is the one tensor of some names."""
    return [each for each in names if isinstance(env.get(each), torch.Tensor)] == [name]


def _of_each(tree: ast.expr, env: Mapping[str, Any], x: torch.Tensor) -> torch.Tensor | None:
    """Return for each element of `x` whether a condition holds, `None` where it is not about each by itself."""
    held = evaluated(tree, env)
    return held if isinstance(held, torch.Tensor) and (held.dtype, held.shape) == (torch.bool, x.shape) else None


def _is_allowed(rules: list[ast.expr], env: Mapping[str, Any], name: str, value: float) -> bool:
    """Say whether rules hold where every element of a tensor is this number, which it can hold."""
    x = torch.full_like(env[name], value)
    held = [_of_each(tree, {**env, name: x}, x) for tree in rules]
    return float(x.flatten()[0]) == value and all(each is not None and bool(each.all()) for each in held)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.is_floating_point() else as_numbers(x).to(torch.int64)


def _put(x: torch.Tensor, wide: torch.Tensor, wrong: torch.Tensor, values: torch.Tensor) -> bool:
    """Put one of the values in place of each wrong element of `x`, which is `wide` as numbers; say whether any is."""
    if not len(values) or not bool(wrong.any()):
        return False
    bits = wide.view(torch.int32).to(torch.int64) if wide.is_floating_point() else wide
    x.copy_(torch.where(wrong, values[(bits * _MIX >> 16) % len(values)], wide))
    return True


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
