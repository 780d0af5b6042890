"""Constraints of one size or number that no value satisfies together: `cap >= 0` and `cap < 0`."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import scalars
from pytest_flashinfer.data.constraints import ConstraintError, Expression, parse
from pytest_flashinfer.data.evaluate import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition

MOST = 64  # numbers that the constraints of one name compare it with
Rule = tuple[int, Expression]
_LOGIC = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Compare)


def contradictions(definition: Definition) -> Iterator[tuple[str, list[Rule]]]:
    """Yield each axis and each number that has no value left, and the constraints that leave it none.

    Only what compares the bare name with constants counts: whether that is true changes at these constants alone, so
    that they, what lies between them and what lies beyond them are all there is to try.
    """
    known = definition.const_axes
    rules: dict[str, list[Rule]] = {}
    for number, constraint in _parsed(definition):
        free = constraint.names - known.keys()
        if len(free) == 1:
            rules.setdefault(min(free), []).append((number, constraint))
    numbers = [name for name, each in definition.inputs.items() if not each.shape and not each.optional]
    for name in dict.fromkeys([*definition.var_axes, *numbers]):
        dtype = "int64" if name in definition.axes else definition.inputs[name].dtype
        told = [(rule, found) for rule in rules.get(name, ()) if (found := _limits(rule[1], name, known)) is not None]
        tried = _tried(dtype, [limit for _, limits in told for limit in limits], size=name in definition.axes)
        plain = [rule for rule, _ in told]
        if tried and not _some(plain, name, tried, known):
            yield name, _needed(plain, name, tried, known)


def _parsed(definition: Definition) -> Iterator[Rule]:
    for number, text in enumerate(definition.constraints):
        try:
            constraint = parse(text)
        except ConstraintError:
            continue  # which is told of by itself
        if constraint.kind != "prose":
            yield number, constraint


def _limits(constraint: Expression, name: str, known: Mapping[str, int]) -> list[float] | None:
    """Return the constants that a name is compared with; `None` where anything else is done with it."""
    if constraint.tree is None or not all(isinstance(node, _LOGIC) for node in _above_comparisons(constraint.tree)):
        return None
    nodes = list(ast.walk(constraint.tree))
    sides = [side for node in nodes if isinstance(node, ast.Compare) for side in (node.left, *node.comparators)]
    others = [side for side in sides if not _is(side, name)]
    if sum(_is(node, name) for node in nodes) != len(sides) - len(others):
        return None
    try:
        values = [run(side, known) for side in others]
    except ConstraintError:
        return None
    limits = [each for value in values for each in (value if isinstance(value, (tuple, list, set)) else (value,))]
    plain = all(isinstance(limit, (int, float)) and abs(limit) < 1 << 63 for limit in limits)
    return limits if plain and len(limits) <= MOST else None


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _above_comparisons(tree: ast.AST) -> Iterator[ast.AST]:
    yield tree
    if not isinstance(tree, ast.Compare):
        for child in ast.iter_child_nodes(tree):
            yield from _above_comparisons(child)


def _tried(dtype: str, limits: Sequence[float], *, size: bool) -> list[Any]:
    """Return the limits and numbers between and beyond them that a dtype has; none where it is no number's."""
    if dtype in ("string", "dtype", "device", "unknown"):
        return []
    if dtype == "bool":
        return [False, True]
    ends = [0] if size else list(scalars.range_of(dtype) or ())
    near = [number for limit in limits for number in (limit - 1, limit, limit + 1)]
    points = sorted({*limits, *near, *ends})
    points += [(one + other) / 2 for one, other in pairwise(sorted(set(limits)))]
    if scalars.range_of(dtype) is not None:
        points = [whole for point in points for whole in {int(point // 1), -int(-point // 1)}]
    allowed = [point for point in points if scalars.problem(point, dtype, optional=False) is None]
    return [point for point in allowed if point >= 0] if size else allowed


def _some(rules: Sequence[Rule], name: str, tried: Sequence[Any], known: Mapping[str, int]) -> bool:
    """Whether one of the values satisfies all rules; where that cannot be told, it may."""
    try:
        return any(all(rule[1].holds({**known, name: value}) for rule in rules) for value in tried)
    except ConstraintError:
        return True


def _needed(rules: list[Rule], name: str, tried: Sequence[Any], known: Mapping[str, int]) -> list[Rule]:
    """Leave out what is not needed for the contradiction."""
    for rule in rules[:]:
        fewer = [each for each in rules if each != rule]
        if fewer and not _some(fewer, name, tried, known):
            rules = fewer
    return rules
