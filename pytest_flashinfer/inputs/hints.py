"""Hints about the values of tensors, learned from the comparisons in constraints; they shape the data, no more."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.vocabulary import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Bound:
    """`lower` and `upper` are the least and greatest values a tensor may hold, as trees over axes."""

    lower: tuple[ast.expr, ...] = ()
    upper: tuple[ast.expr, ...] = ()


@dataclass(slots=True)
class Facts:
    """`totals`: where a tensor ends; `rising`: tensors that never fall; `longest`: the longest segment allowed.

    `others`: what an element may equal instead of lying within the bounds, as -100 in `(x == -100) | (x >= 0)`.
    `compared`: what bounds are made of, the operator with the right side: those of floats have no next number.
    """

    totals: dict[str, ast.expr] = field(default_factory=dict)
    rising: set[str] = field(default_factory=set)
    bounds: dict[str, Bound] = field(default_factory=dict)
    longest: dict[str, ast.expr] = field(default_factory=dict)
    others: dict[str, list[ast.expr]] = field(default_factory=dict)
    compared: dict[str, list[tuple[type[ast.cmpop], ast.expr]]] = field(default_factory=dict)


def constant(node: ast.expr) -> Any:
    """Return the value of a literal, a negative number included; `None` for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand)
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def names_of(tree: ast.AST) -> frozenset[str]:
    """Return the names that a tree mentions, without those of functions, of modules (`math.sqrt(n)`) and of loops."""
    nodes = list(ast.walk(tree))
    loops = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    own = {each.id for target in loops for each in ast.walk(target) if isinstance(each, ast.Name)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    names = [node for node in nodes if isinstance(node, ast.Name) and id(node) not in called]
    return frozenset(name.id for name in names if not (id(name) in owners and name.id in MODULES)) - own


def comparisons(tree: ast.expr) -> Iterator[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """Yield every comparison in the tree, both ways round, its sides without what does not change a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from _both_ways(node)


def demanded(tree: ast.expr) -> Iterator[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """Yield the comparisons that have to hold, all of them and for every element, as `comparisons` does.

    A tensor or a part of it that stands alone has to be true.
    """
    node = _strip(tree)
    if isinstance(node, ast.Compare):
        yield from _both_ways(node)
    elif isinstance(node, ast.Name | ast.Subscript):
        yield node, ast.Eq, ast.Constant(value=True)
    for part in _parts(node, ast.And, ast.BitAnd):
        yield from demanded(part)


def _both_ways(node: ast.Compare) -> Iterator[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    sides = [_strip(side) for side in (node.left, *node.comparators)]
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        yield left, type(op), right
        if type(op) in _FLIP:
            yield right, _FLIP[type(op)], left


def _strip(node: ast.expr) -> ast.expr:
    """Take off what does not change the value: `int(...)`, `.item()`, `.all()`, `.long()`, `.float()`, `torch.all`."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in {"int", "bool", "float", "all"} and len(node.args) == 1:
            node = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in {"item", "all", "long", "int", "float", "cpu"}:
            module = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
            if module and len(node.args) != 1:
                break
            node = node.args[0] if module else node.func.value
        else:
            break
    return node


_FLIP: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq,
}  # fmt: skip


def learn(tree: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Collect hints from the comparisons that have to hold; the whole constraint is checked on the data afterwards.

    Of alternatives one has to hold: hints are taken from the first that bounds a tensor.
    """
    node = _strip(tree)
    if isinstance(node, ast.Compare):
        for left, op, right in _both_ways(node):
            _compare(left, op, right, tensors, facts)
    elif parts := _parts(node, ast.And, ast.BitAnd):
        for part in parts:
            learn(part, tensors, facts)
    elif parts := [part for part in _parts(node, ast.Or, ast.BitOr) if names_of(part) & tensors]:
        values = [_value(part, tensors) for part in parts]
        if isinstance(node, ast.BinOp) and len({names_of(part) & tensors for part in parts}) == 1:
            for part, found in zip(parts, values, strict=True):
                if found is not None and isinstance(part, ast.Compare):  # of each element, not of all together
                    facts.others.setdefault(found[0], []).append(found[1])
        ranges = [part for part, value in zip(parts, values, strict=True) if value is None]
        learn((ranges or parts)[0], tensors, facts)


def _parts(node: ast.expr, word: type[ast.boolop], sign: type[ast.operator]) -> list[ast.expr]:
    """Return what `and` and `&` (or `or` and `|`) join, the latter element by element; nothing for another node."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, word):
        return node.values
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, sign)):
        return []
    return [part for side in (node.left, node.right) for part in _parts(side, word, sign) or [side]]


def _value(part: ast.expr, tensors: set[str]) -> tuple[str, ast.expr] | None:
    """Return the tensor and what its elements equal, for `x == value`."""
    node = _strip(part)
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)):
        return None
    for mine, value in ((_strip(node.left), node.comparators[0]), (_strip(node.comparators[0]), node.left)):
        if isinstance(mine, ast.Name) and mine.id in tensors and not names_of(value) & tensors:
            return mine.id, value
    return None


def _compare(left: ast.expr, op: type[ast.cmpop], right: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Learn from `left op right` where `left` speaks of one tensor."""
    found = _subject(left)
    if found is None or found[0] not in tensors:
        return
    name, what = found
    if what == "tail" and _subject(right) == (name, "head") and op in {ast.GtE, ast.Gt}:
        facts.rising.add(name)
    if names_of(right) & tensors:
        return
    if what == "last" and op is ast.Eq:
        facts.totals.setdefault(name, right)
    elif what == "first" and op is ast.Eq and constant(right) == 0:
        facts.rising.add(name)
    elif what == "steps" and op in {ast.LtE, ast.Lt}:
        facts.longest.setdefault(name, _shifted(right, op))
    else:
        bound, end = facts.bounds.get(name, Bound()), (_shifted(right, op),)
        equal = what == "all" and op is ast.Eq
        above = equal or (what in {"all", "max"} and op in {ast.LtE, ast.Lt})
        below = equal or (what in {"all", "min"} and op in {ast.GtE, ast.Gt})
        if above or below:
            facts.bounds[name] = Bound(bound.lower + end * below, bound.upper + end * above)
            facts.compared.setdefault(name, []).append((op, right))


def _shifted(tree: ast.expr, op: type[ast.cmpop]) -> ast.expr:
    """Return the last integer that a strict comparison still allows."""
    if op is ast.Lt:
        return ast.BinOp(tree, ast.Sub(), ast.Constant(1))
    return ast.BinOp(tree, ast.Add(), ast.Constant(1)) if op is ast.Gt else tree


def _subject(node: ast.expr) -> tuple[str, str] | None:
    """Say of which tensor, and of what of it, an expression speaks: all values, max, min, first, last, steps."""
    if isinstance(node, ast.Name):
        return node.id, "all"
    if isinstance(node, ast.Call):
        return _of_call(node)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _of_subscript(node.value.id, node.slice)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        tail, head = _subject(node.left), _subject(node.right)
        if tail and head and tail[0] == head[0] and (tail[1], head[1]) == ("tail", "head"):
            return tail[0], "steps"
    return None


def _of_call(node: ast.Call) -> tuple[str, str] | None:
    if isinstance(node.func, ast.Attribute) and not node.args:
        which, inner = node.func.attr, node.func.value
    elif isinstance(node.func, ast.Name) and len(node.args) == 1:
        which, inner = node.func.id, node.args[0]
    else:
        return None
    subject = _subject(inner)
    if subject is None:
        return None
    if which == "diff" and subject[1] == "all":
        return subject[0], "steps"
    if which in {"max", "min", "amax", "amin"}:
        return (subject[0], "steps") if subject[1] == "steps" else (subject[0], which.removeprefix("a"))
    return None


def _of_subscript(name: str, index: ast.expr) -> tuple[str, str] | None:
    if isinstance(index, ast.Slice):
        lower = constant(index.lower) if index.lower is not None else None
        upper = constant(index.upper) if index.upper is not None else None
        kinds = {(1, None): "tail", (None, -1): "head", (None, None): "all"}
        kind = kinds.get((lower, upper))
        return (name, kind) if kind else None
    kind = {-1: "last", 0: "first"}.get(constant(index))
    return (name, kind) if kind else None
