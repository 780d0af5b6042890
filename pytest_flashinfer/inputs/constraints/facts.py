"""What the constraints of a definition say: rules between axes, and rules that need the data."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.data.evaluate import is_true
from pytest_flashinfer.data.scalars import rounding
from pytest_flashinfer.data.vocabulary import NoTruthError
from pytest_flashinfer.inputs.constraints.following import add_following
from pytest_flashinfer.inputs.constraints.hints import Facts, learn, learn_filters
from pytest_flashinfer.inputs.constraints.trees import comparisons, constant, names_of

Shapes = Mapping[str, "tuple[str, ...] | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition: `tree` must be true. Where it is an equation, `left` and `right` are its sides."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    left: ast.expr | None = None
    right: ast.expr | None = None

    def holds(self, env: Mapping[str, Any]) -> bool:
        """Compute it for axes and scalars (and tensors, where it reads them). Raises ConstraintError."""
        return is_true(self.tree, env)

    def fails(self, env: Mapping[str, Any], tolerance: float = 0.0) -> bool:
        """Whether it is false, also with floats equal that are within a relative `tolerance`.

        One that cannot be computed, for an input that is left out, is not; what has no truth value is.
        """
        try:
            return not is_true(self.tree, env, tolerance)
        except ConstraintError as error:
            return isinstance(error, NoTruthError)


@dataclass(frozen=True, slots=True)
class Reading:
    """All constraints, sorted: `axis` rules need no data, `data` rules do; `broken` nobody can read.

    `scalar` rules need no data either, but no size follows from them: they say which values a float scalar may have.
    """

    axis: tuple[Rule, ...]
    scalar: tuple[Rule, ...]
    data: tuple[Rule, ...]
    broken: tuple[str, ...]
    facts: Facts


class _ShapesToAxes(ast.NodeTransformer):
    """Replace `T.shape[i]`, `len(T)` and `T is None` by what the declaration says, so that no data is needed."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes

    def _dims(self, node: ast.expr) -> tuple[str, ...] | None:
        return self.shapes.get(node.id) if isinstance(node, ast.Name) else None

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            dims, index = self._dims(node.value.value), constant(node.slice)
            if dims is not None and isinstance(index, int) and -len(dims) <= index < len(dims):
                return dimension(dims[index])
        return self._plain(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
            dims = self._dims(node.args[0])
            if dims:
                return dimension(dims[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size" and len(node.args) == 1:
            dims, index = self._dims(node.func.value), constant(node.args[0])
            if dims is not None and isinstance(index, int) and -len(dims) <= index < len(dims):
                return dimension(dims[index])
        return self._plain(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Count an optional tensor as present: the axes must fit it when it is."""
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)) and self._dims(node.left) is not None:
            return ast.Constant(isinstance(node.ops[0], ast.IsNot))
        return self._plain(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        stop = isinstance(node.op, ast.Or)
        values = [value for value in node.values if constant(value) is not (not stop)]
        if any(constant(value) is stop for value in values):
            return ast.Constant(stop)
        return ast.BoolOp(node.op, values) if len(values) > 1 else values[0] if values else ast.Constant(not stop)

    def _plain(self, node: ast.expr) -> ast.expr:
        self.generic_visit(node)
        return node


def dimension(text: str) -> ast.expr:
    """Parse one entry of a shape: an axis, a number, or arithmetic such as `hidden_size / 2`."""
    tree = parse(text).tree
    if tree is None:
        raise ConstraintError(f"shape entry {text!r} is not an axis")
    return tree


def as_rule(text: str, tree: ast.expr) -> Rule:
    """Make a rule of a tree; an equation is one comparison by `==`."""
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq):
        return Rule(text, tree, names_of(tree), tree.left, tree.comparators[0])
    return Rule(text, tree, names_of(tree))


def _is_tautology(rule: Rule) -> bool:
    """Whether both sides are the same: `x.shape[0] == n` for an `x` whose shape is declared as [n]."""
    return rule.left is not None and rule.right is not None and ast.dump(rule.left) == ast.dump(rule.right)


def _parts(tree: ast.expr) -> Iterator[ast.expr]:
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for value in tree.values:
            yield from _parts(value)
    else:
        yield tree


def _bounds_scalars(rule: Rule, floats: Collection[str]) -> bool:
    """Whether a rule speaks of float scalars alone, or compares one as it is: the scalar then yields to the sizes."""
    if not rule.names.isdisjoint(floats):
        sides = [left for left, _, _ in comparisons(rule.tree)]
        return rule.names <= set(floats) or any(isinstance(side, ast.Name) and side.id in floats for side in sides)
    return False


def failing(rules: Iterable[Rule], env: Mapping[str, Any], floats: Mapping[str, str]) -> list[Rule]:
    """Return the rules that do not hold, nor would with these scalars rounded: `floats` gives the dtype of each."""
    return [rule for rule in rules if rule.fails(env, rounding(floats[name] for name in rule.names & floats.keys()))]


def read(constraints: tuple[str, ...], shapes: Shapes, floats: Collection[str] = ()) -> Reading:
    """Sort the constraints of a definition whose tensors have these declared shapes; `floats` are its float scalars."""
    axis: list[Rule] = []
    scalar: list[Rule] = []
    data: list[Rule] = []
    broken: list[str] = []
    facts = Facts()
    tensors = {name for name, dims in shapes.items() if dims is not None}
    for text in constraints:
        try:
            expression = parse(text)
        except ConstraintError as error:
            broken.append(f"{text}: {error}")
            continue
        if expression.tree is None:  # words, which nobody can check
            continue
        for part in _parts(_ShapesToAxes(shapes).visit(ast.parse(ast.unparse(expression.tree), mode="eval").body)):
            rule = as_rule(text, part)
            if constant(part) is True or _is_tautology(rule):
                continue
            if rule.names & tensors:
                data.append(rule)
                learn(part, tensors, facts)
                learn_filters(part, tensors, facts)
            else:
                (scalar if _bounds_scalars(rule, floats) else axis).append(rule)
    add_following([rule.tree for rule in data], tensors, facts)
    return Reading(tuple(axis), tuple(scalar), tuple(data), tuple(broken), facts)
