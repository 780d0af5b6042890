"""Pointer arrays: where segments of a whole begin and end, what that whole is, and how long each may be."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.hints import Bound
from pytest_flashinfer.inputs.constraints.trees import constant, names_of
from pytest_flashinfer.inputs.roles.stated_values import never_empty
from pytest_flashinfer.inputs.roles.subject import NAMES, Role

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.contract import Contract

_ONE_MORE: Final = re.compile(r"indptr|cu_|plus_?(1|one)|\+")
_ENDS: Final = re.compile(r"\bends?\b|_ends?\b|cum|inclusive")
_FROM_ZERO: Final = re.compile(r"\b(start|begin|first)\w*[^.;,]{0,20}\b(0|zero)\b|^\[?0,")
_TOTAL: Final = re.compile(r"total|nnz|sum|num_(tokens|rows|kv|q|indices)|tokens$|rows$|^(m|n|t)$", re.IGNORECASE)


SUMMED: Final = frozenset({"seq_lens", "counts"})  # roles of tensors that may say how long parts of a total are


@dataclass(frozen=True, slots=True)
class Pointer:
    """An array of segment boundaries. `total` is where the last segment ends; `unit` is what it counts.

    An `open` one has no entry for that end, but one for each segment: where it starts, or of one that is `counted` how
    long it is, or with `ends` where it ends. With `slack` the last segment may also end before the total, and with
    `late` the first one begin after 0.
    """

    name: str
    group: str
    total: ast.expr | None
    unit: str = "tokens"
    open: bool = False
    counted: bool = False
    slack: bool = False
    late: bool = False
    ends: bool = False

    def segments(self, entries: int) -> int:
        """Return how many segments so many entries bound."""
        return max(0, entries - (not self.open))


def pointers_of_roles(
    contract: Contract, roles: dict[str, Role], pages: tuple[str, ...], last_page: str | None
) -> tuple[Pointer, ...]:
    """Return pointer arrays, those over keys first: what queries may have depends on them."""
    found: list[Pointer] = []
    taken: set[str] = set()
    ids = {ast.unparse(trees[0]): name for name in pages if (trees := contract.dims[name]) and len(trees) == 1}
    summed = {name for name, role in roles.items() if role.kind in SUMMED and role.axis is not None}
    for name, role in roles.items():
        if (role.kind == "indptr" or name in summed) and role.axis is not None:
            taken.add(ast.unparse(role.axis))
    names = [name for name, role in roles.items() if role.kind == "indptr" or name in summed]
    for name in sorted(names, key=lambda n: {"kv": 0, "plain": 1, "q": 2}[roles[n].group]):
        room = None if roles[name].axis is not None else _room(contract, name)
        total = roles[name].axis or room or _guess_total(contract, name, roles[name].group, taken, set(ids))
        if total is None and roles[name].group == "q":  # queries and keys lie in one tensor
            total = _guess_total(contract, name, "q", set(), set(ids))
        if total is not None:
            taken.add(ast.unparse(total))
        paged = total is not None and ast.unparse(total) in ids
        unit = "pages" if paged or (last_page and roles[name].group == "kv" and total is None) else "tokens"
        counted = name in summed
        ends = not counted and total is not None and _only_ends(contract, name)
        starts = roles[name].axis is None and total is not None and _only_starts(contract, name, room)
        is_open = counted or ends or starts
        slack = room is not None and (ends or not is_open)
        late = slack and not ends and _begins_anywhere(contract, name)
        found.append(Pointer(name, roles[name].group, total, unit, is_open, counted, slack, late, ends))
    return tuple(_told_apart(found))


def _told_apart(found: list[Pointer]) -> list[Pointer]:
    """Have pointers over pages be those of keys, and over tokens beside them of queries, where no name tells which.

    Rows that are appended to pages are counted as queries are: they are the last of their sequence.
    """
    if {p.group for p in found} != {"plain"} or {p.unit for p in found} != {"pages", "tokens"}:
        return found
    paged = sorted(found, key=lambda p: p.unit != "pages")
    return [replace(p, group="kv" if p.unit == "pages" else "q") for p in paged]


def _room(contract: Contract, name: str) -> ast.expr | None:
    """Return `n` where a constraint says that pointers end at `n` or before it: `offsets[-1] <= n`."""
    last = re.compile(rf"(int\()?{re.escape(name)}\[-1\](\.item\(\))?\)?")
    nodes = (node for rule in contract.reading.data for node in ast.walk(rule.tree) if isinstance(node, ast.Compare))
    for node in nodes:
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.GtE):
            left, right = right, left
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.LtE, ast.GtE)) and last.fullmatch(ast.unparse(left)):
            return right if names_of(right) <= {*contract.sizes, *contract.constants} else None
    return None


def _begins_anywhere(contract: Contract, name: str) -> bool:
    """Whether a constraint says that the first entry is 0 or more, which for one that is always 0 nobody writes."""
    first = rf"(int\()?{re.escape(name)}\[0\](\.item\(\))?\)?"
    said = re.compile(rf"{first} >= 0|0 <= {first}")
    text = (contract.definition.inputs[name].description or "").lower()
    return not _FROM_ZERO.search(text) and any(said.search(ast.unparse(rule.tree)) for rule in contract.reading.data)


def _only_starts(contract: Contract, name: str, room: ast.expr | None) -> bool:
    """Whether there is an entry for each segment and none for the end, which then is the end of all there is.

    So it is where the last entry may be less than the total, or where outputs have a row for each entry.
    """
    axis = ast.unparse((contract.dims[name] or (ast.Name(""),))[0])
    if axis in contract.derived or _ONE_MORE.search(axis):
        return False
    spec = contract.definition.inputs[name]
    leading = {ast.unparse(trees[0]) for trees in contract.output_dims.values() if trees}
    return room is not None or (axis in leading and not _ENDS.search(f"{name} {spec.description or ''}".lower()))


def _only_ends(contract: Contract, name: str) -> bool:
    """Whether each entry says where a segment ends, the first one too: it is not said to be 0."""
    axis = ast.unparse((contract.dims[name] or (ast.Name(""),))[0])
    text = f"{name} {contract.definition.inputs[name].description or ''}".lower()
    if axis in contract.derived or _ONE_MORE.search(axis) or not _ENDS.search(text):
        return False
    zero = re.compile(rf"(int\()?{re.escape(name)}\[0\](\.item\(\))?\)? == 0|0 == (int\()?{re.escape(name)}\[0\].*")
    return not any(zero.search(ast.unparse(rule.tree)) for rule in contract.reading.data)


def _guess_total(contract: Contract, name: str, group: str, taken: set[str], ids: set[str]) -> ast.expr | None:
    """Return the size that no constraint ties to these pointers: a leading axis whose name fits, by convention."""
    best: tuple[tuple[bool, ...], str] | None = None
    for other, trees in contract.dims.items():
        if not trees or other == name or not isinstance(trees[0], ast.Name):
            continue
        axis = trees[0].id
        if axis in contract.constants or axis in contract.derived or axis in taken - ids:
            continue
        about = f"{axis} {other}"
        fits = {"q": "query", "kv": "keys"}.get(group)
        matched = fits is None or NAMES[fits].search(axis) is not None or NAMES[fits].search(other) is not None
        opposite = NAMES["query" if group == "kv" else "keys"]
        wrong = group != "plain" and (opposite.search(axis) is not None or _owned(contract, axis, group))
        if wrong or not (axis in ids or _TOTAL.search(axis)) or NAMES["pool"].search(axis):
            continue
        score = (axis in ids and group == "kv", matched, NAMES["query"].search(about) is None or group == "q")
        if best is None or score > best[0]:
            best = (score, axis)
    return ast.Name(best[1]) if best else None


def _owned(contract: Contract, axis: str, group: str) -> bool:
    """Whether an axis leads tensors of the other group and none of this one: rows of `query` are not those of keys."""
    mine, other = ("query", "keys") if group == "q" else ("keys", "query")
    led = [name for name, trees in contract.dims.items() if trees and ast.unparse(trees[0]) == axis]
    return any(NAMES[other].search(n) for n in led) and not any(NAMES[mine].search(n) for n in led)


def total_axis(pointer: Pointer) -> str | None:
    """Return the axis that a pointer array's total is, where it is one axis."""
    names = names_of(pointer.total) if pointer.total is not None else frozenset()
    return next(iter(names)) if len(names) == 1 else None


def parts_of(contract: Contract, pointer: Pointer) -> tuple[tuple[ast.expr, ...], tuple[ast.expr, ...]]:
    """Return how long each segment has to be at least, and may be at most, as constraints say."""
    facts = contract.reading.facts
    if pointer.counted:
        bound = facts.bounds.get(pointer.name, Bound())
        values = [constant(tree) for tree in facts.others.get(pointer.name, ())]
        if values and all(isinstance(value, int) for value in values):  # one of these
            return (ast.Constant(min(values)),), (ast.Constant(max(values)),)
        return bound.lower, bound.upper
    ends = (facts.shortest.get(pointer.name), facts.longest.get(pointer.name))
    least, most = ((tree,) if tree is not None else () for tree in ends)
    if never_empty(contract.definition, pointer.name):
        least = (*least, ast.Constant(1))
    return least, most
