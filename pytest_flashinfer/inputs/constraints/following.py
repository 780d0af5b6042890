"""Bounds that follow from others: `q_lens <= kv_lens` and `kv_lens <= n` say that q_lens are at most n."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.hints import Bound, Facts, shifted
from pytest_flashinfer.inputs.constraints.solved import solved
from pytest_flashinfer.inputs.constraints.steps import pointers_of, steps_of, with_steps
from pytest_flashinfer.inputs.constraints.trees import FLIP, demanded, names_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_ROUNDS: Final = 3  # tensors that bound each other in a chain
_BELOW: Final = frozenset({ast.Lt, ast.LtE, ast.Eq})


def add_following(trees: Iterable[ast.expr], tensors: Collection[str], facts: Facts) -> None:
    """Add to `facts` the bounds that follow where conditions compare tensors, or segments of pointers, with others."""
    compared = list(_compared(trees, tensors))
    for _ in range(_ROUNDS):
        for name, op, value in compared:
            for upper in [end for end in (True, False) if op is ast.Eq or (op in _BELOW) is end]:
                end = _end(value, tensors, facts, upper=upper)
                if end is not None:
                    _add(facts, name, shifted(end, op), upper=upper)


def _compared(
    trees: Iterable[ast.expr], tensors: Collection[str]
) -> Iterator[tuple[str, type[ast.cmpop], ast.expr]]:  # fmt: skip
    """Yield the tensors and segments that others bound, with the operator and what bounds them."""
    own = {*tensors, *map(steps_of, tensors)}
    for tree in trees:
        for sides in demanded(with_steps(tree, tensors)):
            for part, op, value in solved(*sides, own):
                others = names_of(value) & own
                if isinstance(part, ast.Name) and part.id in own - others and others and op in FLIP:
                    yield part.id, op, value


def _end(tree: ast.expr, tensors: Collection[str], facts: Facts, *, upper: bool) -> ast.expr | None:
    """Return the greatest (`upper`) or the least value of a sum of tensors, as a tree over axes, where it has one.

    Lengths are not negative.
    """
    if isinstance(tree, ast.Name) and (tree.id in tensors or pointers_of(tree.id)):
        low, high = _ends(facts, tree.id)
        return next(iter(high), None) if upper else next(iter(low), ast.Constant(0))
    if not names_of(tree) & {*tensors, *map(steps_of, tensors)}:
        return tree
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        inner = _end(tree.operand, tensors, facts, upper=not upper)
        return None if inner is None else ast.UnaryOp(ast.USub(), inner)
    if not isinstance(tree, ast.BinOp):
        return None
    left = _end(tree.left, tensors, facts, upper=upper)
    falls = isinstance(tree.op, ast.Sub)
    right = _end(tree.right, tensors, facts, upper=upper is not falls)
    plain = isinstance(tree.op, ast.Add | ast.Sub) or right is tree.right  # a factor, a divisor
    return None if left is None or right is None or not plain else ast.BinOp(left, tree.op, right)


def _ends(facts: Facts, name: str) -> tuple[tuple[ast.expr, ...], tuple[ast.expr, ...]]:
    pointers = pointers_of(name)
    if pointers is None:
        bound = facts.bounds.get(name, Bound())
        return bound.lower, bound.upper
    low, high = facts.shortest.get(pointers), facts.longest.get(pointers)
    return (low,) if low is not None else (), (high,) if high is not None else ()


def _add(facts: Facts, name: str, tree: ast.expr, *, upper: bool) -> None:
    pointers = pointers_of(name)
    if pointers is not None:
        (facts.longest if upper else facts.shortest).setdefault(pointers, tree)
        return
    bound = facts.bounds.get(name, Bound())
    known = {ast.dump(each) for each in (bound.upper if upper else bound.lower)}
    if ast.dump(tree) not in known:
        facts.bounds[name] = Bound(bound.lower + (tree,) * (not upper), bound.upper + (tree,) * upper)
