"""Inputs that a reference asks for NaN or infinities: what comes of them is then part of its contract."""

from __future__ import annotations

import ast
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.trees import as_read, constant
from pytest_flashinfer.inputs.dtypes import FLOAT8, far_off
from pytest_flashinfer.inputs.roles.dataflow import called
from pytest_flashinfer.inputs.roles.optional import entry_of
from pytest_flashinfer.inputs.scalars.special import refusals

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_flashinfer.inputs.contract import Contract

FINITE: Final = re.compile(r"\bfinite|\bno nans?\b")
_FINITE_JUNK: Final = re.compile(
    r"\b(arbitrary|garbage|stale|undefined|any)\b[^.;]{0,25}\bfinite|\bfinite\b[^.;]{0,25}\b(garbage|stale)"
)
SPEAKS: Final = {
    "nan": re.compile(r"\bnan\b"),
    "neginf": re.compile(r"-\s?inf|(minus|negative) infinit|fully masked"),
    "inf": re.compile(r"(?<![-\w])inf\b|(?<![-\w])(?<!minus )(?<!negative )infinit"),
}
_DENIED: Final = re.compile(
    r"\b(no|not|never|without|neither)([^\w.;:]+(any|or|nor|and|minus|plus|negative|positive|nans?|infs?|infinit\w+)\b)+"
)
_ASKS: Final = {
    "isfinite": ("nan", "inf", "neginf"), "nan_to_num": ("nan", "inf", "neginf"), "isnan": ("nan",),
    "isinf": ("inf", "neginf"), "isposinf": ("inf",), "isneginf": ("neginf",),
}  # fmt: skip
# Calls that leave each element of a tensor finite, or not, as it was.
_LEAVE: Final = frozenset({
    "to", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach", "abs", "neg", "view", "reshape",
    "flatten", "ravel", "squeeze", "unsqueeze", "t", "transpose", "permute",
})  # fmt: skip


def unreadable(contract: Contract, name: str, dtype: torch.dtype) -> float:
    """Return what fills elements of an input that nobody reads: NaN, or a far number where words want finite ones."""
    own = (contract.definition.inputs[name].description or "").lower()
    finite = FINITE.search(own) or _FINITE_JUNK.search((contract.definition.description or "").lower())
    return far_off(dtype) if finite or dtype in FLOAT8 else math.nan


def speaks_of(family: str, contract: Contract, name: str) -> bool | None:
    """Say whether an input's own description names values of a family, or denies that it holds such; or is silent."""
    text = (contract.definition.inputs[name].description or "").lower()
    if SPEAKS[family].search(_DENIED.sub("", text)):
        return True
    return False if FINITE.search(text) or SPEAKS[family].search(text) else None


@lru_cache(maxsize=64)
def asked(contract: Contract) -> Mapping[str, frozenset[str]]:
    """Return the families of values that are not finite, each with the inputs that the reference asks for them.

    It has to ask about the input itself, in whichever dtype and times a scalar: that a sum or a softmax may be NaN says
    nothing of inputs. What it asserts, or raises an error for, is not asked.
    """
    function, found = entry_of(contract.definition), dict[str, set[str]]()
    if function is None:
        return {}
    refused = {id(node) for test in refusals(function) for node in ast.walk(test)}
    names = _Names(contract)
    for node in as_read(function):
        asks = _ASKS.get(called(node), ()) if isinstance(node, ast.Call) and id(node) not in refused else ()
        name = names.input_of(_operand(node)) if isinstance(node, ast.Call) and asks else None
        for family in asks if name else ():
            found.setdefault(family, set()).add(str(name))
        names.bind(node)
    return {family: frozenset(inputs) for family, inputs in found.items()}


def _operand(node: ast.Call) -> ast.expr | None:
    """Return what a call is about: of `torch.abs(x)` and of `x.abs()`."""
    if isinstance(node.func, ast.Attribute) and not (isinstance(node.func.value, ast.Name) and node.func.value.id in
                                                     {"torch", "np", "numpy", "math"}):  # fmt: skip
        return node.func.value
    return node.args[0] if node.args else next((word.value for word in node.keywords if word.arg == "input"), None)


class _Names:
    """What names stand for, from one statement to the next: inputs whose elements they have, each as finite as it was.

    `bind` is told every node, in the order in which they end.
    """

    def __init__(self, contract: Contract) -> None:
        self._scalars = {name for name, trees in contract.dims.items() if not trees}
        self._inputs = {name: name for name, trees in contract.dims.items() if trees}

    def bind(self, node: ast.AST) -> None:
        """Note what a statement gives a name to, or writes into what a name stands for."""
        value: ast.expr | None = None
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            value, targets = node.value, node.targets if isinstance(node, ast.Assign) else [node.target]
        elif isinstance(node, ast.AugAssign):
            value, targets = ast.BinOp(node.target, node.op, node.value), [node.target]
        elif isinstance(node, ast.For | ast.comprehension):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            targets = [node.func.value]
        name = self.input_of(value)
        for target in targets:
            for each in ast.walk(target):
                self._inputs.pop(each.id if isinstance(each, ast.Name) else "", None)
            if name and isinstance(target, ast.Name):
                self._inputs[target.id] = name

    def input_of(self, node: ast.expr | None) -> str | None:
        """Return the input whose elements an expression has."""
        while node is not None and not isinstance(node, ast.Name):
            if isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
                node = node.operand
            elif isinstance(node, ast.Call) and called(node) in _LEAVE:
                node = _operand(node)
            elif isinstance(node, ast.BinOp):
                node = self._scaled(node)
            else:
                return None
        return None if node is None else self._inputs.get(node.id)

    def _scaled(self, node: ast.BinOp) -> ast.expr | None:
        """Return what a scalar multiplies or divides."""
        if isinstance(node.op, ast.Mult | ast.Div) and self._is_scalar(node.right):
            return node.left
        return node.right if isinstance(node.op, ast.Mult) and self._is_scalar(node.left) else None

    def _is_scalar(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Call) and called(node) in _LEAVE | {"item"} and (inner := _operand(node)):
            node = inner
        return constant(node) is not None or (isinstance(node, ast.Name) and node.id in self._scalars)
