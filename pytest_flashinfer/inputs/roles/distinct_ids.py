"""Ids of which none comes twice: at all, or in a row."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.lists import of_tensors
from pytest_flashinfer.inputs.constraints.trees import called
from pytest_flashinfer.inputs.roles.descriptions import apart
from pytest_flashinfer.inputs.roles.row_roles import PER_ROW

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.roles.subject import Role, Subject

_ALIKE: Final = frozenset({"index", "token_ids"})  # of which several may be one


def as_distinct(s: Subject, role: Role) -> Role:
    """Return the role of ids as slots or as choices have it, where none comes twice as is said, at all or in a row.

    Two rows of a state that are one would have a kernel that updates them at once do what no contract says.
    """
    if role.kind not in _ALIKE | {"slots"} or not s.dims or not none_twice(s):
        return role
    by_row = role.kind in _ALIKE and len(s.dims) > 1 and (s.told(PER_ROW) or _along_a_row(s, role))
    return replace(role, kind="expert_ids") if by_row else replace(role, kind="slots", distinct=True)


def _along_a_row(s: Subject, role: Role) -> bool:
    """Whether ids are of the entries of their own row, of which there are as many."""
    return role.limit is not None and ast.unparse(role.limit) == s.axis(-1)


def none_twice(s: Subject) -> bool:
    """Whether no id comes twice, as the description says or a constraint counts."""
    return apart(s.text) or _counted_once(s)


def _counted_once(s: Subject) -> bool:
    """Say whether as many different ones are picked out as there are, as `x[x >= 0].unique().numel() == n_used`."""
    trees = (of_tensors(rule.tree) for rule in s.contract.reading.data if s.name in rule.names)
    sides = (side for tree in trees if isinstance(tree, ast.Compare) for side in (tree.left, *tree.comparators))
    nodes = (node for side in sides for node in ast.walk(side) if isinstance(node, ast.Call))
    picked = (inner for which, inner in map(called, nodes) if which == "unique" and isinstance(inner, ast.Subscript))
    return any(isinstance(each.value, ast.Name) and each.value.id == s.name for each in picked)
