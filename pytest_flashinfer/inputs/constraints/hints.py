"""Hints about the values of tensors, learned from the comparisons in constraints; they shape the data, no more."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from pytest_flashinfer.inputs.constraints.subjects import magnitude_of, subject_of
from pytest_flashinfer.inputs.constraints.trees import (
    both_ways,
    called,
    constant,
    joined,
    names_of,
    positive,
    stripped,
    terms_of,
)

NEGATIVE = (-1, -2)  # what marks unused entries where every negative number does


@dataclass(frozen=True, slots=True)
class Bound:
    """`lower` and `upper` are the least and greatest values a tensor may hold, as trees over axes."""

    lower: tuple[ast.expr, ...] = ()
    upper: tuple[ast.expr, ...] = ()


@dataclass(slots=True)
class Facts:
    """`totals`: where a tensor ends; `sums`: what its elements sum to; `rising`: tensors that never fall.

    `shortest` and `longest`: how long a segment between pointers has to and may be. `peaks`: what the largest element
    of a tensor, or the longest segment, is equal to. `units`: what lengths, or segments, are multiples of.
    `others`: what an element may equal instead of lying within the bounds, as -100 in `(x == -100) | (x >= 0)`.
    `choices`: all that it may equal, as in `(x == 0) | (x == 1)`.
    `compared`: what bounds are made of, the operator with the right side: those of floats have no next number.
    """

    totals: dict[str, ast.expr] = field(default_factory=dict)
    sums: dict[str, ast.expr] = field(default_factory=dict)
    rising: set[str] = field(default_factory=set)
    bounds: dict[str, Bound] = field(default_factory=dict)
    shortest: dict[str, ast.expr] = field(default_factory=dict)
    longest: dict[str, ast.expr] = field(default_factory=dict)
    peaks: dict[str, ast.expr] = field(default_factory=dict)
    units: dict[str, ast.expr] = field(default_factory=dict)
    others: dict[str, list[ast.expr]] = field(default_factory=dict)
    choices: dict[str, list[ast.expr]] = field(default_factory=dict)
    compared: dict[str, list[tuple[type[ast.cmpop], ast.expr]]] = field(default_factory=dict)

    def take_bounds(self, other: Facts) -> None:
        """Take in what is known where one of several alternatives holds: it says nothing of how long segments are."""
        self.totals = {**other.totals, **self.totals}
        self.rising |= other.rising
        for name, bound in other.bounds.items():
            mine = self.bounds.get(name, Bound())
            self.bounds[name] = Bound(mine.lower + bound.lower, mine.upper + bound.upper)
        for name, values in other.others.items():
            self.others.setdefault(name, []).extend(values)
        for name, pairs in other.compared.items():
            self.compared.setdefault(name, []).extend(pairs)


def learn(tree: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Collect hints from the comparisons that have to hold; the whole constraint is checked on the data afterwards.

    Of alternatives one has to hold: hints are taken from the first that bounds a tensor.
    """
    node = stripped(positive(tree))
    if isinstance(node, ast.Compare):
        for left, op, right in both_ways(node):
            _of_set(left, op, right, tensors, facts)
            _compare(left, op, right, tensors, facts)
            if magnitude_of(left) in tensors and not names_of(right) & tensors:
                _of_magnitudes(magnitude_of(left), op, right, facts)
    elif parts := joined(node, ast.And, ast.BitAnd):
        for part in parts:
            learn(part, tensors, facts)
    elif parts := [part for part in joined(node, ast.Or, ast.BitOr) if names_of(part) & tensors]:
        _of_alternatives(parts, tensors, facts, single=isinstance(node, ast.BinOp))


def _of_alternatives(parts: list[ast.expr], tensors: set[str], facts: Facts, *, single: bool) -> None:
    """Learn from parts of which one has to hold; `single`: of each element, not of all together."""
    values = [_value(part, tensors) for part in parts]
    guards = [_exempted(part, tensors) for part in parts]
    if single:
        alike = len({names_of(part) & tensors for part in parts}) == 1
        for part, found, name in zip(parts, values, guards, strict=True):
            if alike and found is not None and isinstance(part, ast.Compare):
                facts.others.setdefault(found[0], []).append(found[1])
            if name and len(parts) > 1:
                facts.others.setdefault(name, []).extend(map(ast.Constant, NEGATIVE))
    if single and _of_choices(values, facts):
        return
    ranges = [part for part, *other in zip(parts, values, guards, strict=True) if other == [None, ""]]
    for part in ranges or parts:
        learn(part, tensors, told := Facts())
        if told != Facts():
            facts.take_bounds(told)
            break


def _of_choices(values: list[tuple[str, ast.expr] | None], facts: Facts) -> bool:
    """Learn that one tensor may hold a few numbers only; say whether that is all that the alternatives are."""
    equal = [value for value in values if value is not None]
    if len(equal) != len(values) or len(values) < 2 or len({name for name, _ in equal}) > 1:  # noqa: PLR2004 - a choice
        return False
    name, trees = equal[0][0], [tree for _, tree in equal]
    facts.choices.setdefault(name, trees)
    known = {n: tree for tree in trees if isinstance(n := constant(tree), (int, float))}
    if len(known) < len(trees):
        return False
    bound = facts.bounds.get(name, Bound())
    facts.bounds[name] = Bound((*bound.lower, known[min(known)]), (*bound.upper, known[max(known)]))
    return True


def _of_set(left: ast.expr, op: type[ast.cmpop], right: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Learn that a tensor holds numbers of a set only: `set(x.tolist()) <= {1, 2, 4}`."""
    which, inner = called(left) if isinstance(left, ast.Call) else ("", None)
    if which == "set" and op is ast.LtE and isinstance(right, ast.Set):
        numbers = called(inner)[1] if isinstance(inner, ast.Call) else inner
        if isinstance(numbers, ast.Name) and numbers.id in tensors:
            _of_choices([(numbers.id, tree) for tree in right.elts], facts)


def _exempted(part: ast.expr, tensors: set[str]) -> str:
    """Return the tensor whose negative elements a condition is about, as `x < 0`: what else is said is not of these."""
    node = stripped(part)
    pairs = both_ways(node) if isinstance(node, ast.Compare) else ()
    below = {(ast.Lt, 0), (ast.LtE, -1)}
    found = (x.id for x, op, value in pairs if isinstance(x, ast.Name) and (op, constant(value)) in below)
    return next((name for name in found if name in tensors), "")


def learn_filters(tree: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Have negative entries where those from 0 on are picked out or counted, as by `x[x >= 0]`: they mark nothing."""
    for node in ast.walk(tree):
        picked: ast.expr | None = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call):
            which, picked = called(node)
            picked = picked if which in {"sum", "count_nonzero", "nonzero"} else None
        if isinstance(picked, ast.Compare):
            for left, op, right in both_ways(picked):
                if isinstance(left, ast.Name) and left.id in tensors:
                    marks = map(ast.Constant, _filtered(op, constant(right)))
                    facts.others.setdefault(left.id, []).extend(marks)


def _filtered(op: type[ast.cmpop], value: object) -> tuple[int, ...]:
    """Return negative numbers that a condition leaves out."""
    if (op, value) in {(ast.GtE, 0), (ast.Gt, -1)}:
        return NEGATIVE
    return (value,) if op is ast.NotEq and isinstance(value, int) and value < 0 else ()


def _value(part: ast.expr, tensors: set[str]) -> tuple[str, ast.expr] | None:
    """Return the tensor and what its elements equal, for `x == value`."""
    node = stripped(part)
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)):
        return None
    for mine, value in ((stripped(node.left), node.comparators[0]), (stripped(node.comparators[0]), node.left)):
        if isinstance(mine, ast.Name) and mine.id in tensors and not names_of(value) & tensors:
            return mine.id, value
    return None


def _compare(left: ast.expr, op: type[ast.cmpop], right: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Learn from `left op right` where `left` speaks of one tensor."""
    if isinstance(left, ast.BinOp) and not names_of(right) & tensors:
        _arithmetic(left, op, right, tensors, facts)
    found = subject_of(left)
    if found is None or found[0] not in tensors:
        return
    name, what = found
    if what == "tail" and subject_of(right) == (name, "head") and op in {ast.GtE, ast.Gt}:
        facts.rising.add(name)
        if op is ast.Gt:
            facts.shortest.setdefault(name, ast.Constant(1))
    if names_of(right) & tensors:
        return
    if what == "last" and op is ast.Eq:
        facts.totals.setdefault(name, right)
    elif what == "sum" and op is ast.Eq:
        facts.sums.setdefault(name, right)
    elif what == "first" and op is ast.Eq and constant(right) == 0:
        facts.rising.add(name)
    elif what in {"steps", "longest", "shortest"}:
        _of_segments(name, what, op, right, facts)
    else:
        _bounds(name, what, op, right, facts)


def _of_magnitudes(name: str, op: type[ast.cmpop], right: ast.expr, facts: Facts) -> None:
    """Have a bound on the magnitudes of a tensor be one on either side of 0."""
    if op in {ast.Lt, ast.LtE}:
        _bounds(name, "all", op, right, facts)
        _bounds(name, "all", ast.Gt if op is ast.Lt else ast.GtE, ast.UnaryOp(ast.USub(), right), facts)


def _arithmetic(left: ast.BinOp, op: type[ast.cmpop], right: ast.expr, tensors: set[str], facts: Facts) -> None:
    if isinstance(left.op, ast.Mod) and op is ast.Eq and constant(right) == 0 and not names_of(left.right) & tensors:
        found = subject_of(stripped(left.left))
        if found is not None and found[0] in tensors and found[1] in {"all", "steps"}:
            facts.units.setdefault(found[0], left.right)
    elif isinstance(left.op, ast.Add) and op in {ast.Lt, ast.LtE}:
        _shares(left, shifted(right, op), tensors, facts)


def _shares(total: ast.BinOp, most: ast.expr, tensors: set[str], facts: Facts) -> None:
    """Have each of several extremes that are added up keep within its share: `x.max() + y.max() < n`."""
    found = [subject_of(term) for _, term in terms_of(total, added=True)]
    names = [each[0] for each in found if each is not None and each[1] == "max" and each[0] in tensors]
    if len(names) == len(found):
        share = ast.BinOp(most, ast.FloorDiv(), ast.Constant(len(names)))
        for name in names:
            _bounds(name, "max", ast.LtE, share, facts)


def _of_segments(name: str, what: str, op: type[ast.cmpop], right: ast.expr, facts: Facts) -> None:
    if what != "shortest" and op in {ast.LtE, ast.Lt, ast.Eq}:
        facts.longest.setdefault(name, shifted(right, op))
    if what != "longest" and op in {ast.GtE, ast.Gt, ast.Eq}:
        facts.shortest.setdefault(name, shifted(right, op))
    if what == "longest" and op is ast.Eq:
        facts.peaks.setdefault(name, right)


def _bounds(name: str, what: str, op: type[ast.cmpop], right: ast.expr, facts: Facts) -> None:
    bound, end = facts.bounds.get(name, Bound()), (shifted(right, op),)
    equal = what == "all" and op is ast.Eq
    peak = what == "max" and op is ast.Eq
    above = equal or peak or (what in {"all", "max"} and op in {ast.LtE, ast.Lt})
    below = equal or (what in {"all", "min"} and op in {ast.GtE, ast.Gt})
    if peak:
        facts.peaks.setdefault(name, right)
    if above or below:
        facts.bounds[name] = Bound(bound.lower + end * below, bound.upper + end * above)
        facts.compared.setdefault(name, []).append((op, right))


def shifted(tree: ast.expr, op: type[ast.cmpop]) -> ast.expr:
    """Return the last integer that a strict comparison still allows."""
    if op is ast.Lt:
        return ast.BinOp(tree, ast.Sub(), ast.Constant(1))
    return ast.BinOp(tree, ast.Add(), ast.Constant(1)) if op is ast.Gt else tree
