"""Trees told by two tensors, of the first child of each node and of its next sibling: every node is pointed to once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.integers.unused import hold

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Setting

_CHILD: Final = re.compile(r"\bfirst[ _-]child\b", re.IGNORECASE)
_SIBLING: Final = re.compile(r"\bnext[ _-]sibling\b", re.IGNORECASE)
_NONE: Final = -1


def agree(setting: Setting, tensors: Mapping[str, torch.Tensor]) -> None:
    """Have children and siblings be those of one tree in each row, in place: chains, stars, and what lies between.

    A node comes after its parent, and after the sibling before it.
    """
    child, sibling = _named(setting.contract, _CHILD), _named(setting.contract, _SIBLING)
    one, other = tensors.get(child), tensors.get(sibling)
    if one is None or other is None or one.shape != other.shape or not one.dim() or not one.numel():
        return
    if one.shape[-1] > min(setting.ends(name)[1] for name in (child, sibling)):
        return
    drawn = [_tree(one.shape[-1], setting.rng) for _ in range(one.numel() // one.shape[-1])]
    made = [torch.tensor([row[i] for row in drawn]).view(one.shape) for i in range(2)]
    if hold(setting, child, made[0]) and hold(setting, sibling, made[1]):
        one.copy_(made[0])
        other.copy_(made[1])


def _named(contract: Contract, what: re.Pattern[str]) -> str:
    """Return the only integer input whose description or name begins with what a tensor of links is of."""
    specs = contract.definition.inputs.items()
    found = [name for name, spec in specs if what.search(f"{name}: {spec.description or ''}".split(".")[0])]
    return found[0] if len(found) == 1 else ""


def _tree(count: int, rng: Random) -> tuple[list[int], list[int]]:
    """Return the first child and the next sibling of each node of a tree whose root is node 0."""
    child, sibling, last = [_NONE] * count, [_NONE] * count, [_NONE] * count
    width = rng.choice((1, 2, count))  # how far back a parent may be
    for node in range(1, count):
        parent = rng.randrange(max(0, node - width), node)
        if last[parent] == _NONE:
            child[parent] = node
        else:
            sibling[last[parent]] = node
        last[parent] = node
    return child, sibling
