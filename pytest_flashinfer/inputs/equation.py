"""Solve one equation for one unknown whole number, whatever its form, as long as the unknown acts one way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.data.evaluate import run

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.facts import Rule

_LIMIT: Final = 1 << 48


def whole(value: object) -> int | None:
    """Return a number as an int, or `None` where it is not whole; `True` counts as 1."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, int) else None


def size(tree: ast.expr | None, env: Mapping[str, Any]) -> int | None:
    """Return the whole number that a tree gives, or `None` where something in it is not known."""
    if tree is None:
        return None
    try:
        return whole(run(tree, env))
    except ConstraintError:
        return None


def invert(rule: Rule, unknown: str, env: Mapping[str, Any]) -> int | str | None:
    """Return the least value >= 0 of `unknown` that makes both sides of `rule` equal, or `None`.

    A side that is the unknown itself takes the other side's value, which may be a text. Otherwise the difference of
    the sides must rise or fall with the unknown, as it does for sums, products, quotients and rounded quotients.
    """
    if rule.left is None or rule.right is None:
        return None
    for side, other in ((rule.left, rule.right), (rule.right, rule.left)):
        if getattr(side, "id", None) == unknown:
            value = _value(other, env)
            if isinstance(value, str):
                return value
            number = whole(value)
            return number if number is not None and number >= 0 else None
    return _search(rule, unknown, dict(env))


def _value(tree: ast.expr, env: Mapping[str, Any]) -> object:
    try:
        return run(tree, env)
    except ConstraintError:
        return None


def _search(rule: Rule, unknown: str, env: dict[str, Any]) -> int | None:
    def gap(x: int) -> float | None:
        env[unknown] = x
        left, right = _value(rule.left, env), _value(rule.right, env)  # type: ignore[arg-type]
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        return float(left - right) if numbers else None  # type: ignore[operator]

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
