"""Sizes that go together: what constraints over axes do not say, but the data that will be drawn needs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.constraints.arrangements import crowds
from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.limits import limits
from pytest_flashinfer.inputs.dtypes import is_float
from pytest_flashinfer.inputs.errors import Unsatisfiable
from pytest_flashinfer.inputs.integers.queries import requests, split_rows, told_lengths
from pytest_flashinfer.inputs.integers.unused import dispensable
from pytest_flashinfer.inputs.pointers import parts_of, total_axis
from pytest_flashinfer.inputs.sizes.axes import complete

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.pointers import Pointer

_ROUNDS: Final = 6
_SPARE: Final = 2  # of what a total may be, one part in so many is left at the most
_DENSE_Q: Final = re.compile(
    r"^(q|qo)_?(seq_?)?len$|seq_?len_qo?(_|$)|^len_qo?(_|$)|^Q$|^q_len(gth)?(_|$)|^num_q(ueries)?$"
)
_DENSE_KV: Final = re.compile(r"^kv?_?(seq_?)?len$|seq_?len_kv?$|^len_kv?(_|$)|^KV$|^num_k(v|eys)$")


def settle(contract: Contract, plan: Plan, wish: Mapping[str, int], pinned: Collection[str] = ()) -> dict[str, int]:
    """Return the sizes of all axes, near to `wish`, for which valid data exists. Raises Unsatisfiable.

    Without segments a total is 0; there are enough keys for the queries, and enough entries in what ids point into.
    Sizes with too few entries for ids that a description calls distinct are none.
    """
    choice = {name: wish[name] for name in contract.free if name in wish}
    env: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        env = complete(contract, choice, pinned)
        changes = {
            name: value
            for name, value in _needs(contract, plan, env)
            if name in contract.free and env.get(name) != value
        }
        choice = {name: env[name] for name in contract.free if name in env}
        if not changes:
            break
        choice.update(changes)
    _check_distinct(contract, plan, env)
    return {name: env[name] for name in (*contract.constants, *contract.axis_names) if name in env}


def _needs(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield sizes that have to change, with the value they need."""
    for pointer in plan.pointers:
        axis = total_axis(pointer)
        if axis in contract.free and _segments(contract, pointer, env) == 0:
            yield axis, 0
        elif size(pointer.total, env) and (trees := contract.dims[pointer.name]):
            yield from _at_least(trees[0], 1 + (not pointer.open), env)
    for name in plan.of("batch_ids"):
        rows = (contract.dims[name] or (None,))[0]
        if isinstance(rows, ast.Name) and plan.pointers and not any(_segments(contract, p, env) for p in plan.pointers):
            yield rows.id, 0
    yield from _long_enough(contract, plan, env)
    yield from _little_enough(contract, plan, env)
    yield from _enough_keys(contract, plan, env)
    yield from _even(contract, plan, env)
    for pointer in plan.pointers if plan.last_page in contract.told_ranges else ():
        if pointer.unit == "pages" and pointer.total is not None:  # every sequence has a page
            yield from _at_least(pointer.total, _segments(contract, pointer, env), env)
    yield from _allowing_zero(contract, plan, env)
    yield from _enough_ids(contract, plan, env)


def _enough_ids(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """As many entries as ids that differ, of all tensors that point into one pool where they must not meet."""
    slots: dict[str, int] = {}
    for name in plan.of("page_table") if any(env.get(n, 1) for n in _rows_of(contract, plan)) else ():
        yield from _at_least((contract.dims[name] or (ast.Constant(1),))[0], 1, env)
    for name, role in plan.roles.items():
        trees = contract.dims[name] or ()
        none_used = dispensable(role) and size(role.limit, env) == 0
        if role.limit is None or not trees or none_used:
            continue
        shape = [size(tree, env) or 0 for tree in trees]
        if role.kind in {"page_ids", "slots", "page_table"}:
            pool = f"{role.kind == 'slots' or name} {ast.unparse(role.limit)}"
            slots[pool] = slots.get(pool, 0) + _product(shape)
            yield from _at_least(role.limit, slots[pool], env)
        elif role.kind in {"expert_ids", "packed_experts"}:
            yield from _at_least(role.limit, shape[-1] if len(shape) > 1 else min(1, shape[0]), env)
        elif _product(shape):
            yield from _at_least(role.limit, 1, env)
    for name, by_row in crowds(contract):
        limit = plan.roles[name].limit if name in plan.roles else None
        if limit is not None and not is_float(contract.dtype(name)):
            shape = [size(tree, env) or 0 for tree in contract.dims[name] or ()]
            yield from _at_least(limit, shape[-1] if by_row and shape else _product(shape), env)


def _check_distinct(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> None:
    for name, role in plan.roles.items():
        limit = size(role.limit, env) if role.distinct and not role.unused else None
        count = _product([size(tree, env) or 0 for tree in contract.dims[name] or ()])
        if limit is not None and count > limit:
            raise Unsatisfiable(f"{name} distinct", f"{count} ids and {limit} that they may be")


def _rows_of(contract: Contract, plan: Plan) -> list[str]:
    """Return the axes of rows that belong to some sequence each."""
    trees = [(contract.dims[name] or (None,))[0] for name in plan.of("batch_ids")]
    return [tree.id for tree in trees if isinstance(tree, ast.Name)]


def _even(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Rows of queries that nothing splits among the sequences: as many for each, and none without sequences."""
    rows, count = split_rows(contract, plan, "q"), size(requests(contract, plan), env) or 0
    have = env.get(rows.id, 0) if rows is not None else 0
    if rows is not None and not count and have:
        yield rows.id, 0
    elif rows is not None and count and have % count and not told_lengths(plan, "q"):
        yield rows.id, -(-have // count) * count


def _allowing_zero(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Bounds of values, `x.max() < n`, that leave room for one value at least, 0 or more, where there are any."""
    for name, bound in contract.reading.facts.bounds.items():
        if name in plan.roles and _product([size(tree, env) or 0 for tree in contract.dims[name] or ()]):
            least = max((size(lower, env) or 0 for lower in bound.lower), default=0)
            for upper in bound.upper:
                if not (dispensable(plan.roles[name]) and size(upper, env) == -1):
                    yield from _at_least(upper, max(0, least), env)


def _long_enough(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Segments that may be long enough to hold the total, and a total that is enough for them, as constraints say."""
    for pointer in plan.pointers:
        total, count = size(pointer.total, env), _segments(contract, pointer, env)
        if pointer.total is None or total is None or not count:
            continue
        shortest, longest = parts_of(contract, pointer)
        for tree in shortest:
            yield from _at_least(pointer.total, count * max(0, size(tree, env) or 0), env)
        for tree in longest if total else ():
            raised = [each for each in _at_least(tree, -(-total // count), env) if each[0] in contract.free]
            yield from raised
            most, axis = size(tree, env), total_axis(pointer)
            if not raised and axis is not None and most is not None and most * count < total:
                least = count * max([0, *(size(tree, env) or 0 for tree in shortest)])
                yield axis, _fitting(total, least, most * count)
        unit, axis = size(contract.reading.facts.units.get(pointer.name), env) or 1, total_axis(pointer)
        if axis is not None and total % unit:
            yield axis, -(-total // unit) * unit
        peak = size(contract.reading.facts.peaks.get(pointer.name), env)
        yield from _at_least(pointer.total, peak or 0, env)


def _little_enough(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Totals, as in `mask.sum() == n`, that the elements can have, each as large as it may be."""
    for name, tree in contract.reading.facts.sums.items():
        is_mask = name in plan.roles and plan.roles[name].kind == "mask"
        each, total = 1 if is_mask else limits(contract, name, env)[1], size(tree, env)
        if isinstance(tree, ast.Name) and tree.id in contract.free and each is not None and total is not None:
            most = max(0, each) * _product([size(axis, env) or 0 for axis in contract.dims[name] or ()])
            if total > most:
                yield tree.id, _fitting(total, 0, most)


def _fitting(total: int, least: int, most: int) -> int:
    """Return another total, from `least` to `most`, for one that is too large: seldom all that there is room for."""
    return most - total % (max(0, most - least) // _SPARE + 1)


def _product(shape: list[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _segments(contract: Contract, pointer: Pointer, env: Mapping[str, Any]) -> int:
    trees = contract.dims[pointer.name] or ()
    return pointer.segments(size(trees[0], env) or 0) if trees else 0


def _at_least(limit: ast.expr, count: int, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Raise the first size in `limit` until it is `count` or more; the others in it stay."""
    have = size(limit, env)
    if have is None or have >= count:
        return
    tree = limit
    while isinstance(tree, ast.BinOp):
        tree = tree.left
    if isinstance(tree, ast.Name):
        others = {**env, tree.id: 1}
        each = max(1, size(limit, others) or 1)
        need = -(-count // each)
        step = count - (size(limit, {**env, tree.id: need}) or 0)  # where the limit is `n - 1`, or more is taken off
        yield tree.id, need + max(0, step)


def _tables_of_positions(contract: Contract, plan: Plan) -> list[ast.expr]:
    """Return the sizes of tables that positions in sequences look up, of those that have an axis of their own."""
    pairs = [(contract.dims[n] or (), plan.roles[n].limit) for n in plan.of("positions") if plan.of("batch_ids")]
    return [limit for dims, limit in pairs if limit is not None and ast.dump(limit) not in map(ast.dump, dims)]


def _enough_keys(contract: Contract, plan: Plan, env: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Keys for every query, and for every row that is appended at a position of its sequence."""
    dense = [next((n for n in contract.free if pattern.search(n)), None) for pattern in (_DENSE_Q, _DENSE_KV)]
    if dense[0] and dense[1] and env.get(dense[1], 0) < env.get(dense[0], 0):
        yield dense[1], env[dense[0]]
    query, keys = plan.pointer("q", "plain"), plan.pointer("kv")
    wanted = size(query.total, env) or 0 if query else size(split_rows(contract, plan, "q"), env) or 0
    for name in plan.of("batch_ids"):
        wanted = max(wanted, _product([size(tree, env) or 0 for tree in contract.dims[name] or ()]))
    if not wanted:
        return
    page = size(plan.page_size, env) or 1
    if keys is not None and keys is not query:
        axis, have = total_axis(keys), size(keys.total, env) or 0
        room = have * (page if keys.unit == "pages" else 1)
        for limit in _tables_of_positions(contract, plan):  # a row for each of them
            yield from _at_least(limit, room, env)
        if axis and room < wanted and _segments(contract, keys, env):
            yield axis, -(-wanted // page) if keys.unit == "pages" else wanted
        if axis:
            return
    for name in plan.of("page_table"):
        trees = contract.dims[name] or ()
        rows, width = (size(tree, env) or 0 for tree in (trees[0], trees[-1]))
        if rows and rows * width * page < wanted and isinstance(trees[-1], ast.Name):
            yield trees[-1].id, -(-wanted // (rows * page))
