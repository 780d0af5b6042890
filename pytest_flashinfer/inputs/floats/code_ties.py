"""Values half way between the codes of a quantisation: who rounds halves another way than the contract shows there."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.data.source import BrokenSource, parse_python
from pytest_flashinfer.inputs.roles.dataflow import called

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.contract import Contract

_DECIDED: Final = re.compile(r"\bties\b|\bhalf[ -](to[ -])?even\b|\bbanker|\bround\w*[ -]half\b", re.IGNORECASE)
_LARGEST: Final = frozenset({7, 8, 15, 127, 128, 255})  # codes of four and of eight bits
_POWERS: Final = (-4, 4)  # of two, that scales are
_GROUP: Final = 16  # columns: each group of so many has the largest code, so that any block's scale is exact


@lru_cache(maxsize=64)
def largest_code(contract: Contract) -> int:
    """Return the code that the largest magnitude of a row gets, where words say who wins between two codes, else 0."""
    definition = contract.definition
    specs = (*definition.inputs.values(), *definition.outputs.values())
    words = " ".join(filter(None, (definition.description, *(spec.description for spec in specs))))
    tree = parse_python(definition.reference or "")
    if isinstance(tree, BrokenSource) or not _DECIDED.search(words):
        return 0
    nodes = list(ast.walk(tree))
    rounds = any(isinstance(node, ast.Call) and called(node) in {"round", "round_", "rint"} for node in nodes)
    numbers = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return max((n for n in _LARGEST if n in numbers), default=0) if rounds else 0


def fill(x: torch.Tensor, most: int, generator: torch.Generator) -> None:
    """Fill a float tensor [..., columns] in place with halves of a power of two, the largest `most` times that."""
    flat = x.view(-1, x.shape[-1]) if x.dim() else x.view(1, 1)
    halves = torch.randint(1 - 2 * most, 2 * most, flat.shape, generator=generator, device=x.device)
    halves[:, ::_GROUP] = 2 * most * (2 * torch.randint(0, 2, (1,), generator=generator, device=x.device) - 1)
    power = int(torch.randint(*_POWERS, (1,), generator=generator, device=x.device))
    flat.copy_(halves * 2.0 ** (power - 1))
