"""Solve one equation for one unknown whole number, whatever its form, as long as the unknown acts one way."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.data.evaluate import run
from pytest_flashinfer.inputs.constraints.trees import names_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.constraints.facts import Rule

_LIMIT: Final = 1 << 48
_RISING: Final = (ast.Add, ast.Mult)
_EXACT: Final = (*_RISING, ast.Sub, ast.Div, ast.LShift, ast.USub, ast.UAdd)
_NEGATIVE: Final = (ast.Sub, ast.USub, ast.Invert)
_ROUNDED: Final = (ast.FloorDiv, ast.RShift)
_ROUNDING: Final = frozenset({"int", "float", "round", "ceil", "floor", "cdiv", "ceil_div", "item"})


def whole(value: object) -> int | None:
    """Return a number as an int, or `None` where it is not whole; `True` counts as 1."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, int) else None


def evaluated(tree: ast.expr, env: Mapping[str, Any]) -> Any:
    """Return what a tree comes to, `None` where it cannot be computed."""
    try:
        return run(tree, env)
    except ConstraintError:
        return None


def size(tree: ast.expr | None, env: Mapping[str, Any]) -> int | None:
    """Return the whole number that a tree gives, or `None` where something in it is not known."""
    return None if tree is None else whole(evaluated(tree, env))


def invert(rule: Rule, unknown: str, env: Mapping[str, Any]) -> int | str | None:
    """Return the least value >= 0 of `unknown` that makes both sides of `rule` equal, or `None`.

    A side that is the unknown itself takes the other side's value, which may be a text. Otherwise the rule has to
    yield the unknown.
    """
    if rule.left is None or rule.right is None:
        return None
    for side, other in ((rule.left, rule.right), (rule.right, rule.left)):
        if getattr(side, "id", None) == unknown:
            value = evaluated(other, env)
            if isinstance(value, str):
                return value
            number = whole(value)
            return number if number is not None and number >= 0 else None
    return _search(rule, unknown, dict(env)) if yields(rule, unknown) else None


@lru_cache(maxsize=1024)
def yields(rule: Rule, name: str) -> bool:
    """Say whether an equation in which `name` stands alone on no side gives a value for it that a search finds.

    The difference of the sides only rises or only falls with a name that occurs once, in sums, products, quotients and
    rounded quotients, or several times in sums and products of one side, where nothing is below 0. Of several values
    that do, as in `n // 16 == 2`, the least would be the only one ever tried: a rounded quotient has to speak of
    another size too.
    """
    sides = [side for side in (rule.left, rule.right) if side is not None and name in names_of(side)]
    if len(sides) != 1:
        return False
    nodes = list(ast.walk(sides[0]))
    several = sum(isinstance(node, ast.Name) and node.id == name for node in nodes) > 1
    if several and any(isinstance(node, _NEGATIVE) for node in nodes):
        return False
    operators = _RISING if several else _EXACT if len(rule.names) == 1 else _EXACT + _ROUNDED
    return _acts_through(sides[0], name, operators)


def _acts_through(tree: ast.expr, name: str, operators: tuple[type[ast.AST], ...]) -> bool:
    """Whether nothing but these operators, and functions that round where those are among them, is around a name."""
    if isinstance(tree, ast.BinOp | ast.UnaryOp):
        parts = [tree.left, tree.right] if isinstance(tree, ast.BinOp) else [tree.operand]
        known = isinstance(tree.op, operators)
    elif isinstance(tree, ast.Call):
        parts = [*tree.args, tree.func.value] if isinstance(tree.func, ast.Attribute) else tree.args
        known = ast.FloorDiv in operators and getattr(tree.func, "attr", getattr(tree.func, "id", "")) in _ROUNDING
    else:
        return isinstance(tree, ast.Name)
    return known and all(_acts_through(part, name, operators) for part in parts if name in names_of(part))


def _search(rule: Rule, unknown: str, env: dict[str, Any]) -> int | None:
    def gap(x: int) -> float | None:
        env[unknown] = x
        left, right = evaluated(rule.left, env), evaluated(rule.right, env)  # type: ignore[arg-type]
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        return float(left - right) if numbers else None

    low = 0 if gap(0) is not None else 1  # a division by the unknown has no value at 0
    start = gap(low)
    if not start:
        return low if start == 0 else None
    high = low + 1
    end = gap(high)
    while end is not None and end != 0 and (end > 0) == (start > 0):
        low, high = high, 2 * high
        if high > _LIMIT:
            return None
        end = gap(high)
    while high - low > 1:
        middle = (low + high) // 2
        here = gap(middle)
        if here is None:
            return None
        if here != 0 and (here > 0) == (start > 0):
            low = middle
        else:
            high = middle
    return high if gap(high) == 0 else None
