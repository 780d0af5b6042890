"""Whole numbers that a reference divides and compares sizes with: chunks, windows and limits that no axis names."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeGuard

from pytest_flashinfer.data.source import BrokenSource, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.contract import Contract

_LEAST: Final = 4  # less are indices of dimensions and the like
_MOST: Final = 2048
_KEPT: Final = 2


class _Whole(ast.Constant):
    value: int


@lru_cache(maxsize=64)
def literals(contract: Contract) -> tuple[int, ...]:
    """Return the first few such numbers; those that sizes are compared with may not be a constant axis' size."""
    tree = parse_python(contract.definition.reference or "")
    if isinstance(tree, BrokenSource):
        return ()
    named = _named(tree)
    known = {*contract.constants.values()}
    divisors = [n for place in _divisors(tree) for n in _numbers(place, named)]
    bounds = [n for place in _bounds(tree) for n in _numbers(place, named) if n not in known]
    return tuple(dict.fromkeys(n for n in (*divisors, *bounds) if _LEAST <= n <= _MOST))[:_KEPT]


def _named(tree: ast.AST) -> dict[str, int]:
    """Return the names that the reference gives to whole numbers: `CHUNK = 32`."""
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1)
    return {
        node.targets[0].id: node.value.value
        for node in assigned
        if isinstance(node.targets[0], ast.Name) and _is_whole(node.value)
    }


def _divisors(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            yield node.right


def _bounds(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what is compared, and bounds of slices and ranges; other arithmetic is about values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.Slice):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            yield from node.args


def _numbers(place: ast.AST, named: dict[str, int]) -> Iterator[int]:
    for node in ast.walk(place):
        if _is_whole(node):
            yield node.value
        elif isinstance(node, ast.Name) and node.id in named:
            yield named[node.id]


def _is_whole(node: ast.AST) -> TypeGuard[_Whole]:
    return isinstance(node, ast.Constant) and type(node.value) is int
