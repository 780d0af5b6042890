"""Ids that a reference compares with other ids: by chance no two of many are equal, so rows begin alike."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.dtypes import as_numbers, is_integer
from pytest_flashinfer.inputs.integers.unused import hold
from pytest_flashinfer.inputs.roles.uses import use
from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Setting

_KINDS: Final = frozenset({"token_ids", "index"})
_WRAPPED: Final = 1 << 16  # what ids differ by that 16 bits cannot tell apart


@lru_cache(maxsize=64)
def pairs(contract: Contract) -> tuple[tuple[str, str], ...]:
    """Return the integer inputs whose entries the reference compares for equality, each pair once."""
    inputs = contract.definition.inputs
    places = {name: use(contract.definition, name).equated for name in inputs if is_integer(inputs[name].dtype)}
    return tuple(pair for pair in combinations(sorted(places), 2) if places[pair[0]] & places[pair[1]])


def agree(setting: Setting, tensors: Mapping[str, torch.Tensor]) -> None:
    """Have rows of compared ids begin alike in every other draw, in place: wholly, up to some column, or not at all.

    Where nothing bounds the ids, what comes then differs in its upper bits alone in some rows.
    """
    kinds = {name: role.kind for name, role in setting.plan.roles.items()}
    for one, other in pairs(setting.contract) if way_of(setting.seed, "alike", 2) else ():
        a, b = tensors.get(one), tensors.get(other)
        if a is None or b is None or not {kinds[one], kinds[other]} <= _KINDS or a.shape[:-1] != b.shape[:-1]:
            continue
        changed = _alike(setting, a, b, bounded=setting.plan.roles[other].limit is not None)
        if hold(setting, other, changed):
            b.copy_(changed)


def _alike(setting: Setting, a: torch.Tensor, b: torch.Tensor, *, bounded: bool) -> torch.Tensor:
    changed, rng = as_numbers(b).clone(), setting.rng
    width = min(a.shape[-1], b.shape[-1]) if a.dim() else 0
    if not width or not a.numel():
        return changed
    lines = zip(as_numbers(a).reshape(-1, a.shape[-1]), changed.view(-1, b.shape[-1]), strict=True)
    for number, (given, line) in enumerate(lines):
        count = (width, rng.randrange(width + 1), max(0, width - 1), 0)[number % 4]
        line[:count] = given[:count]
        if count < width and not bounded and rng.random() < 0.5 and b.dtype.itemsize > 2:  # noqa: PLR2004
            line[count] = given[count] + _WRAPPED
    return changed
