"""Constraints on how long segments are, written with the pointers between them: `indptr[1:] - indptr[:-1] <= lens`."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.loops import unrolled
from pytest_flashinfer.inputs.constraints.trees import called, constant, stripped, terms_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_flashinfer.inputs.constraints.trees import Term

_PREFIX: Final = "steps of "  # no name of an input begins so


def steps_of(name: str) -> str:
    """Return what the lengths of the segments between pointers are called in a condition."""
    return f"{_PREFIX}{name}"


def pointers_of(name: str) -> str | None:
    """Return the pointers whose segments a name stands for; `None` where it is no such name."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def with_steps(tree: ast.expr, pointers: Collection[str]) -> ast.expr:
    """Return a condition in which names of their own stand for the differences of neighbouring pointers."""
    found: ast.expr = _WithSteps(pointers).visit(copy.deepcopy(tree))
    return found


class _WithSteps(ast.NodeTransformer):
    def __init__(self, pointers: Collection[str]) -> None:
        self.pointers = pointers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        word, inner = called(node)
        if word == "all" and isinstance(inner, ast.GeneratorExp | ast.ListComp):
            whole = unrolled(inner)
            if whole is not inner:
                found: ast.expr = self.visit(whole)
                return found
        if word == "diff" and isinstance(inner, ast.Name) and inner.id in self.pointers:
            return ast.Name(steps_of(inner.id), ast.Load())
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, ast.Add | ast.Sub):
            terms = list(terms_of(node, added=True))
            if self._joined(terms):
                return _sum([(added, self.visit(term)) for added, term in terms])
        self.generic_visit(node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Look at both sides together: `indptr[1:] == indptr[:-1] + lens`, and `indptr[1:] == lens.cumsum(0)`."""
        if len(node.ops) == 1:
            self._without_cumsum(node)
            left, right = stripped(node.left), stripped(node.comparators[0])
            own = [*terms_of(left, added=True)]
            terms = [*own, *terms_of(right, added=False)]
            if self._joined(terms) and not self._joined(own):
                total = _sum([(added, self.visit(term)) for added, term in terms])
                return ast.Compare(total, node.ops, [ast.Constant(0)])
        self.generic_visit(node)
        return node

    def _without_cumsum(self, node: ast.Compare) -> None:
        """Have steps beside lengths where pointers stand beside the running sum of these."""
        sides = [stripped(node.left), stripped(node.comparators[0])]
        for mine, theirs in (sides, sides[::-1]):
            pointer, lengths = self._part(mine, lower=1), _summed(theirs)
            if pointer is not None and lengths is not None:
                node.left, node.comparators = ast.Name(steps_of(pointer), ast.Load()), [lengths]

    def _joined(self, terms: list[Term]) -> bool:
        """Put steps in the place of pairs of terms, in place; say whether there was one."""
        count = len(terms)
        for added, term in tuple(terms):
            pointer = self._part(term, lower=1)
            pair = next((t for t in terms if t[0] is not added and self._part(t[1], upper=-1) == pointer), None)
            if pointer is not None and pair is not None:
                terms.remove(pair)
                terms[terms.index((added, term))] = (added, ast.Name(steps_of(pointer), ast.Load()))
        return len(terms) < count

    def _part(self, node: ast.expr, lower: int | None = None, upper: int | None = None) -> str | None:
        """Return the pointers of which a tree is such a part."""
        node = stripped(node)
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.step is None):
            return None
        ends = [None if end is None else constant(end) for end in (node.slice.lower, node.slice.upper)]
        name = node.value.id if isinstance(node.value, ast.Name) else None
        return name if ends == [lower, upper] and name in self.pointers else None


def _sum(terms: list[Term]) -> ast.expr:
    """Return the sum of terms, those first that are added."""
    terms = sorted(terms, key=lambda term: not term[0])
    total = terms[0][1] if terms[0][0] else ast.UnaryOp(ast.USub(), terms[0][1])
    for added, term in terms[1:]:
        total = ast.BinOp(total, ast.Add() if added else ast.Sub(), term)
    return total


def _summed(node: ast.expr) -> ast.expr | None:
    """Return what a running sum is of: `x` in `x.cumsum(0)` and `torch.cumsum(x, dim=0)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cumsum"):
        return None
    owner = node.func.value
    of_torch = isinstance(owner, ast.Name) and owner.id == "torch"
    return node.args[0] if of_torch and node.args else None if of_torch else owner
