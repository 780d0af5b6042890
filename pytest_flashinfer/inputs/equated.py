"""Ids that a reference compares with other ids: by chance no two of many are equal, so rows begin alike."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.hints import comparisons, names_of
from pytest_flashinfer.inputs.optional import entry_of
from pytest_flashinfer.inputs.unused import hold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.sequences import Setting

_KINDS: Final = frozenset({"token_ids", "index"})
_WRAPPED: Final = 1 << 16  # what ids differ by that 16 bits cannot tell apart


@lru_cache(maxsize=64)
def pairs(contract: Contract) -> tuple[tuple[str, str], ...]:
    """Return the inputs whose entries the reference compares for equality, each pair once."""
    function = entry_of(contract.definition)
    if function is None:
        return ()
    return tuple(dict.fromkeys(_compared(function, frozenset(contract.definition.inputs))))


def _compared(function: ast.AST, inputs: frozenset[str]) -> Iterator[tuple[str, str]]:
    behind = {name: frozenset({name}) for name in inputs}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found = [behind[name] for name in names_of(node.value) if name in behind]
            behind.setdefault(node.targets[0].id, frozenset().union(*found))
    for node in ast.walk(function):
        for left, op, right in comparisons(node) if isinstance(node, ast.Compare) else ():
            sides = [{owner for name in names_of(side) for owner in behind.get(name, ())} for side in (left, right)]
            if op in {ast.Eq, ast.NotEq} and all(len(side) == 1 for side in sides) and sides[0] != sides[1]:
                one, other = sorted(sides[0] | sides[1])
                yield one, other


def agree(setting: Setting, tensors: Mapping[str, torch.Tensor]) -> None:
    """Have rows of compared ids begin alike in every other draw, in place: wholly, up to some column, or not at all.

    Where nothing bounds the ids, what comes then differs in its upper bits alone in some rows.
    """
    kinds = {name: role.kind for name, role in setting.plan.roles.items()}
    for one, other in pairs(setting.contract) if setting.seed % 2 else ():
        a, b = tensors.get(one), tensors.get(other)
        if a is None or b is None or not {kinds[one], kinds[other]} <= _KINDS or a.shape[:-1] != b.shape[:-1]:
            continue
        changed = _alike(setting, a, b, bounded=setting.plan.roles[other].limit is not None)
        if hold(setting, other, changed):
            b.copy_(changed)


def _alike(setting: Setting, a: torch.Tensor, b: torch.Tensor, *, bounded: bool) -> torch.Tensor:
    changed, rng = b.clone(), setting.rng
    width = min(a.shape[-1], b.shape[-1]) if a.dim() else 0
    if not width or not a.numel():
        return changed
    lines = zip(a.reshape(-1, a.shape[-1]), changed.view(-1, b.shape[-1]), strict=True)
    for number, (given, line) in enumerate(lines):
        count = (width, rng.randrange(width + 1), max(0, width - 1), 0)[number % 4]
        line[:count] = given[:count]
        if count < width and not bounded and rng.random() < 0.5 and line.dtype.itemsize > 2:  # noqa: PLR2004
            line[count] = given[count] + _WRAPPED
    return changed
