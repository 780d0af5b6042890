"""Values of scalars that mean something of their own: the reference branches on them, or the description says so."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.constraints.trees import comparisons, constant, names_of
from pytest_flashinfer.inputs.dtypes import is_float
from pytest_flashinfer.inputs.roles.optional import entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.recipe import Scalar

_TOLD: Final = re.compile(
    r"(?<![\w.*/^-])([<>]=?)?\s*(-?\d+(?:\.\d+)?)\s*"
    r"(?:(?:also )?means?\b|disables?\b|turns?\b[^.;,]{0,12}\boff\b|(?:[:=]|is|for|to)\s*(?:disabled?|none|off|no\b))",
    re.IGNORECASE,
)
_BESIDE: Final = {"<": -1, ">": 1}
_ORDERS: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def special(contract: Contract, name: str, usual: Scalar | None) -> tuple[float, ...]:
    """Return numbers for which the contract treats a scalar otherwise than for its `usual` value.

    They are those that the description names (`0 means none`), and one for each comparison with a number in the
    reference, the truth of the scalar itself included. What the reference refuses is no such comparison.
    """
    if isinstance(usual, bool | str):
        return ()
    spec = contract.definition.inputs[name]
    found = [float(n) + _BESIDE.get(sign or "", 0) for sign, n in _TOLD.findall(spec.description or "")]
    if usual is not None:
        found += _branches(contract, name, usual)
    return tuple(dict.fromkeys(n for n in found if n != usual))


def _branches(contract: Contract, name: str, usual: float) -> Iterator[float]:
    """Yield a number for each condition that is another one with it than with the usual value."""
    function = entry_of(contract.definition)
    if function is None or any(name in names_of(test) for test in refusals(function)):
        return
    for node in ast.walk(function):
        if _truths(node, name) and usual:
            yield 0.0
        if not isinstance(node, ast.Compare):
            continue
        for left, op, right in comparisons(node):
            number = constant(right)
            plain = isinstance(number, int | float) and not isinstance(number, bool)
            if isinstance(left, ast.Name) and left.id == name and plain:
                yield from _across(op, number, usual, is_whole=not is_float(contract.dtype(name)))


def _across(op: type[ast.cmpop], number: float, usual: float, *, is_whole: bool) -> Iterator[float]:
    """Yield the number itself where it is on the other side, else the next one; of fractions only below 0.

    Of whole numbers the last one on the usual side too: a window of 0 keys is one, where -1 means that there is none.
    A number far from 0 in an order is a size more often than it means something.
    """
    if op in {ast.Eq, ast.NotEq}:
        yield number
    elif op in _ORDERS and abs(number) <= 1:
        beside = (number - 1, number + 1) if is_whole else (-1.0,) if number == 0 else ()
        compare = _ORDERS[op]
        usually = compare(usual, number)
        yield from [n for n in (number, *beside) if compare(n, number) != usually][:1]
        if is_whole:
            yield from [n for n in (number, *beside) if compare(n, number) == usually][:1]


def refusals(function: ast.AST) -> Iterator[ast.expr]:
    """Yield what is asserted, and conditions on which something is raised."""
    for node in ast.walk(function):
        refuses = isinstance(node, ast.If) and any(isinstance(each, ast.Raise) for each in (*node.body, *node.orelse))
        if isinstance(node, ast.If | ast.Assert) and (refuses or isinstance(node, ast.Assert)):
            yield node.test


def _truths(node: ast.AST, name: str) -> bool:
    """Whether a scalar itself is a condition: `if x`, `not x`, `x or 1.0`."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        tests = [node.test]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        tests = [node.operand]
    elif isinstance(node, ast.BoolOp):
        tests = node.values
    return any(isinstance(test, ast.Name) and test.id == name for test in tests)
