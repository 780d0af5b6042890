"""Conditions that are true or false of each element of a tensor, and so neither of the tensor: `indptr >= 0`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.data.model import Definition

_OF_ALL = (ast.Is, ast.IsNot, ast.In, ast.NotIn)  # have one truth value for all of a tensor


def ranks_of(definition: Definition) -> dict[str, int]:
    """Return how many axes each input and output has, but for those that are 1."""
    ones = {"1", *(name for name, size in definition.const_axes.items() if size == 1)}
    tensors = {**definition.inputs, **definition.outputs}
    return {name: sum(axis not in ones for axis in spec.shape or ()) for name, spec in tensors.items()}


def elementwise(tree: ast.expr, ranks: Mapping[str, int]) -> str:
    """Return the first condition within a constraint that is one for each element; empty where there is none.

    What methods and functions give is left to the run.
    """
    return next((ast.unparse(part) for part in _asked(tree) if _is_tensor(part, ranks)), "")


def _asked(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield what is asked whether it is true."""
    if isinstance(tree, ast.BoolOp):
        parts = tree.values
    elif isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        parts = [tree.operand]
    elif isinstance(tree, ast.IfExp):
        parts = [tree.test, tree.body, tree.orelse]
    else:
        yield tree
        return
    for part in parts:
        yield from _asked(part)


def _keeps_most(picked: ast.expr) -> bool:
    """Whether a slice leaves out a few elements at most, as `[1:]` and `[:-1]`: `[:1]` and `[-1:]` are one element."""
    if not isinstance(picked, ast.Slice):
        return False
    ends_late = picked.upper is None or isinstance(picked.upper, ast.UnaryOp)
    return ends_late and (picked.lower is None or isinstance(picked.lower, ast.Constant))


def _is_tensor(tree: ast.expr, ranks: Mapping[str, int]) -> bool:
    """Whether an expression has more than one element, as far as its operators tell."""
    if isinstance(tree, ast.Name):
        return ranks.get(tree.id, 0) > 0
    if isinstance(tree, ast.Subscript):
        rank = ranks.get(tree.value.id, 0) if isinstance(tree.value, ast.Name) else 0
        return rank > 1 if isinstance(tree.slice, ast.Constant) else rank > 0 and _keeps_most(tree.slice)
    parts: list[ast.expr] = []
    if isinstance(tree, ast.BinOp):
        parts = [tree.left, tree.right]
    elif isinstance(tree, ast.UnaryOp) and not isinstance(tree.op, ast.Not):
        parts = [tree.operand]
    elif isinstance(tree, ast.Compare) and not any(isinstance(op, _OF_ALL) for op in tree.ops):
        parts = [tree.left, *tree.comparators]
    return any(_is_tensor(part, ranks) for part in parts)
