"""Conditions on one element after another, `all(a <= b for a, b in zip(x, y))`, as conditions on whole tensors."""

from __future__ import annotations

import ast
import copy
import re
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHOLE = r"[A-Za-z_]\w*|len\(\w+\)|\w+\.(shape\[0\]|numel\(\))"
_ENTIRE = re.compile(rf"range\(([01], )?({_WHOLE})( - 1)?\)")  # of all indices
_LISTS = frozenset({"tolist", "list", "flatten"})


def unrolled(node: ast.expr) -> ast.expr:
    """Return the condition of a loop with tensors in place of their elements; the node itself where that is not plain.

    Loops over tensors, over several at once (`zip`, `enumerate` without its number), and over indices in `range(n)`.
    """
    if not isinstance(node, ast.GeneratorExp | ast.ListComp) or len(node.generators) != 1 or node.generators[0].ifs:
        return node
    loop = node.generators[0]
    if _is_call(loop.iter, "range") and isinstance(loop.target, ast.Name):
        return _Indexed(loop.target.id, node.elt, _stop(loop.iter)).whole(node)
    bound = _short(dict(_bound(loop.target, loop.iter)))
    return _Replaced(bound).visit(copy.deepcopy(node.elt)) if bound else node


def _stop(values: ast.expr) -> ast.expr | None:
    """Return where a range ends that is not of all indices; `None` for one that is."""
    assert isinstance(values, ast.Call)
    return None if _ENTIRE.fullmatch(ast.unparse(values)) else values.args[-1]


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name and not node.keywords


def _bound(target: ast.expr, values: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield what each name of a loop stands for."""
    if isinstance(target, ast.Name):
        yield target.id, _without_list(values)
    elif isinstance(target, ast.Tuple) and isinstance(values, ast.Call):
        if _is_call(values, "zip") and len(target.elts) == len(values.args):
            for each, value in zip(target.elts, values.args, strict=True):
                yield from _bound(each, value)
        elif _is_call(values, "enumerate") and len(target.elts) == 2 and len(values.args) == 1:  # noqa: PLR2004
            yield from _bound(target.elts[1], values.args[0])


def _short(bound: dict[str, ast.expr]) -> dict[str, ast.expr]:
    """Leave out of whole tensors what a loop does not come to: `zip(x, x[1:])` ends with the shorter one."""
    tails = {ast.unparse(tree.value) for tree in bound.values() if _is_tail(tree)}  # type: ignore[attr-defined]
    head = ast.Slice(upper=ast.UnaryOp(ast.USub(), ast.Constant(1)))
    cut = (name for name, tree in bound.items() if ast.unparse(tree) in tails)
    return {**bound, **{name: ast.Subscript(bound[name], head, ast.Load()) for name in cut}}


def _is_tail(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "1:"


def _without_list(node: ast.expr) -> ast.expr:
    """Return the tensor, or the part of one, of which a list is made."""
    if isinstance(node, ast.Subscript):
        return ast.Subscript(_without_list(node.value), node.slice, ast.Load())
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _LISTS and not node.args:
            node = node.func.value
        elif _is_call(node, "list") and len(node.args) == 1:
            node = node.args[0]
        else:
            break
    return node


class _Replaced(ast.NodeTransformer):
    """Put trees in the place of names, and what goes for each element in that of what is said of one by itself."""

    def __init__(self, trees: dict[str, ast.expr]) -> None:
        self.trees = trees

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        sign = ast.BitAnd if isinstance(node.op, ast.And) else ast.BitOr
        return reduce(lambda left, right: ast.BinOp(left, sign(), right), node.values)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.trees.get(node.id, node))


class _Indexed(ast.NodeTransformer):
    """Put whole tensors in the place of `x[i]`; beside `x[i + 1]` or `x[i - 1]`, their heads and tails."""

    def __init__(self, index: str, condition: ast.expr, stop: ast.expr | None) -> None:
        self.index = index
        self.stop = stop
        self.shifts: dict[str, set[int]] = {}
        for node in ast.walk(condition):
            shift = self._shift(node)
            if shift is not None:
                self.shifts.setdefault(ast.unparse(node.value), set()).add(shift)  # type: ignore[attr-defined]

    def whole(self, loop: ast.GeneratorExp | ast.ListComp) -> ast.expr:
        """Return the condition without indices; the loop where one is left, or is more than one step away."""
        if not all(shifts <= {0, 1} or shifts <= {0, -1} for shifts in self.shifts.values()):
            return loop
        ends = loop.generators[0].iter
        if self.stop is not None and (set().union(*self.shifts.values()) != {0} or len(getattr(ends, "args", ())) != 1):
            return loop
        found: ast.expr = self.visit(copy.deepcopy(loop.elt))
        left = any(isinstance(node, ast.Name) and node.id == self.index for node in ast.walk(found))
        return loop if left else found

    def _shift(self, node: ast.AST) -> int | None:
        """Return the `n` of `x[i + n]`."""
        if not isinstance(node, ast.Subscript):
            return None
        at = node.slice
        if isinstance(at, ast.Name):
            return 0 if at.id == self.index else None
        if not (isinstance(at, ast.BinOp) and isinstance(at.left, ast.Name) and at.left.id == self.index):
            return None
        step = at.right.value if isinstance(at.right, ast.Constant) else None
        if not isinstance(step, int) or not isinstance(at.op, ast.Add | ast.Sub):
            return None
        return step if isinstance(at.op, ast.Add) else -step

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        shift = self._shift(node)
        if shift is None:
            self.generic_visit(node)
            return node
        shifts = self.shifts[ast.unparse(node.value)]
        if shifts <= {0}:
            part = ast.Slice(upper=self.stop)
            return node.value if self.stop is None else ast.Subscript(node.value, part, ast.Load())
        later = shift > 0 or (shift == 0 and -1 in shifts)
        tail, head = ast.Slice(lower=ast.Constant(1)), ast.Slice(upper=ast.UnaryOp(ast.USub(), ast.Constant(1)))
        return ast.Subscript(node.value, tail if later else head, ast.Load())
