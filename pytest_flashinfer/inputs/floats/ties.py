"""Choices among equal values where a float output depends on who wins and no contract says so: none are drawn equal."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.data.source import BrokenSource, parse_python
from pytest_flashinfer.inputs.constraints.trees import constant
from pytest_flashinfer.inputs.dtypes import is_float
from pytest_flashinfer.inputs.floats.scores import inputs
from pytest_flashinfer.inputs.roles.dataflow import called
from pytest_flashinfer.inputs.roles.float_roles import FREE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

# Families that have equal values in a row, or so small ones that those of a softmax are.
FAMILIES: Final = frozenset({
    "ties", "small_ints", "constant_rows", "zero_rows", "sparse", "half_zero", "repeated", "masked", "neginf", "tiny",
})  # fmt: skip
_PLACES: Final = frozenset({"argsort", "argmax", "argmin"})
_PAIRS: Final = frozenset({"topk", "sort", "max", "min", "kthvalue", "median", "mode"})  # of values and of places
_SETTLED: Final = re.compile(
    r"\bties?\b|\btie-?break|stable[ _-]sort|\bsort\w* (is )?stabl|stable\s*=\s*True"
    r"|\b(lowest|smallest|lower|smaller|highest|largest)[- ](\w+ )?(ind(ex|ices)|ids?|positions?)\b"
    r"|\bfirst (occurrence|one|index|of (them|equal))",
    re.IGNORECASE,
)


def matter(contract: Contract, plan: Plan, name: str) -> bool:
    """Say whether a float output may depend on which of equal scores of an input is chosen, and nothing says which.

    Ids are compared by what they stand for. So are values beside them, unless there is one for each element of a row.
    """
    wide = {each for each, role in plan.roles.items() if role.kind in FREE and len(contract.dims[each] or ()) > 1}
    if plan.roles[name].kind not in {"probs", "log_probs", "logits"} and name not in inputs(plan) and {name} != wide:
        return False
    return _matter(contract, name)


@lru_cache(maxsize=256)
def _matter(contract: Contract, name: str) -> bool:
    definition = contract.definition
    shapes = {each: spec.shape for each, spec in definition.outputs.items() if is_float(spec.dtype)}
    spread = definition.inputs[name].shape in shapes.values()
    if not shapes or (len(shapes) < len(definition.outputs) and not spread):
        return False
    specs = (*definition.inputs.values(), *definition.outputs.values())
    text = " ".join(filter(None, (definition.description, definition.reference, *(spec.description for spec in specs))))
    tree = parse_python(definition.reference or "")
    return not (isinstance(tree, BrokenSource) or _SETTLED.search(text)) and any(_places(tree))


def _places(tree: ast.Module) -> Iterator[bool]:
    """Say of each choice among values whether the places of those that are chosen are read."""
    nodes = list(ast.walk(tree))
    read = {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "indices"}
    read |= {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Subscript) and constant(node.slice) == 1}
    for node in nodes:
        if isinstance(node, ast.Call):
            yield called(node) in _PLACES or (called(node) in _PAIRS and ast.unparse(node) in read)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called(node.value) in _PAIRS:
            target = node.targets[0]
            both = target.elts if isinstance(target, ast.Tuple) else []
            yield ast.unparse(target) in read or any(not ast.unparse(each).startswith("_") for each in both[1:])
