"""Comparisons solved for a tensor: `a + b <= n` says of `a` that it is at most `n - b`, and the like of `b`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.constraints.trees import FLIP, constant, names_of, stripped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    Comparison = tuple[ast.expr, type[ast.cmpop], ast.expr]

_CEILING = frozenset({"cdiv", "ceil_div"})


def solved(left: ast.expr, op: type[ast.cmpop], right: ast.expr, tensors: Collection[str]) -> Iterator[Comparison]:
    """Yield what `left op right` says of each part of `left` that speaks of `tensors`: of terms, factors, quotients.

    Factors and divisors are taken to be positive numbers.
    """
    node = stripped(left)
    if op not in FLIP or not names_of(node) & set(tensors):
        yield left, op, right
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from solved(node.operand, FLIP[op], ast.UnaryOp(ast.USub(), right), tensors)
    elif isinstance(node, ast.BinOp):
        yield from _of_terms(node, op, right, tensors)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CEILING:
        yield from _of_ceiling(node, op, right, tensors)
    else:
        yield left, op, right


def _of_terms(node: ast.BinOp, op: type[ast.cmpop], right: ast.expr, tensors: Collection[str]) -> Iterator[Comparison]:
    one, other = node.left, node.right
    mine, theirs = (bool(names_of(side) & set(tensors)) for side in (one, other))
    if isinstance(node.op, ast.Add):
        yield from solved(one, op, ast.BinOp(right, ast.Sub(), other), tensors) if mine else ()
        yield from solved(other, op, ast.BinOp(right, ast.Sub(), one), tensors) if theirs else ()
    elif isinstance(node.op, ast.Sub):
        yield from solved(one, op, ast.BinOp(right, ast.Add(), other), tensors) if mine else ()
        yield from solved(other, FLIP[op], ast.BinOp(one, ast.Sub(), right), tensors) if theirs else ()
    elif isinstance(node.op, ast.Mult) and mine is not theirs:
        part, factor = (one, other) if mine else (other, one)
        if not _is_negative(factor):
            yield from solved(part, op, ast.BinOp(right, ast.Div(), factor), tensors)
    elif isinstance(node.op, ast.FloorDiv) and mine and not theirs:
        yield from _of_floor(node, op, right, tensors)


def _is_negative(factor: ast.expr) -> bool:
    value = constant(factor)
    return isinstance(value, int | float) and value <= 0


def _of_floor(node: ast.BinOp, op: type[ast.cmpop], right: ast.expr, tensors: Collection[str]) -> Iterator[Comparison]:
    """Solve `x // n op right` for x."""
    least = ast.BinOp(right, ast.Mult(), node.right)
    next_one = ast.BinOp(least, ast.Add(), node.right)
    if op in {ast.LtE, ast.Eq}:
        yield from solved(node.left, ast.Lt, next_one, tensors)
    if op in {ast.GtE, ast.Eq}:
        yield from solved(node.left, ast.GtE, least, tensors)
    if op is ast.Lt:
        yield from solved(node.left, ast.Lt, least, tensors)
    if op is ast.Gt:
        yield from solved(node.left, ast.GtE, next_one, tensors)


def _of_ceiling(node: ast.Call, op: type[ast.cmpop], right: ast.expr, tensors: Collection[str]) -> Iterator[Comparison]:
    """Solve `cdiv(x, n) op right` for x: it is -(-x // n)."""
    if len(node.args) != 2 or node.keywords or names_of(node.args[1]) & set(tensors):  # noqa: PLR2004
        return
    negative = ast.BinOp(ast.UnaryOp(ast.USub(), node.args[0]), ast.FloorDiv(), node.args[1])
    yield from _of_floor(negative, FLIP[op], ast.UnaryOp(ast.USub(), right), tensors)
