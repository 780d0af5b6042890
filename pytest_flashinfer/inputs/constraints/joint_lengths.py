"""Lengths that constraints speak of together: of two tensors, or of segments beside a tensor of lengths."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.box import BELOW, Box, Limit
from pytest_flashinfer.inputs.constraints.elements import limits_in, put_right
from pytest_flashinfer.inputs.constraints.limits import readable
from pytest_flashinfer.inputs.constraints.steps import pointers_of, steps_of, with_steps
from pytest_flashinfer.inputs.constraints.trees import names_of, terms_of
from pytest_flashinfer.inputs.integers.lengths import arranged, telling
from pytest_flashinfer.inputs.integers.partition import floored, partition
from pytest_flashinfer.inputs.integers.queries import capacity, rooms
from pytest_flashinfer.inputs.integers.segments import USUAL
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.pointers import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting

_ROUNDS: Final = 6


@dataclass(slots=True)
class _Vector:
    """The lengths of one tensor; `lengths` is the list to change, `fixed` says that their sum may not."""

    lengths: list[int]
    fixed: bool


@lru_cache(maxsize=64)
def limits_on_lengths(contract: Contract) -> tuple[Limit, ...]:
    """Return what constraints say of each length, and of each segment between pointers."""
    plan = plan_of(contract)
    own = {p.name: p.name if p.counted else steps_of(p.name) for p in plan.pointers if p.counted or not p.open}
    pointers = [name for name, vector in own.items() if vector != name]
    tensors = {*contract.definition.inputs, *own.values()}
    trees = [with_steps(rule.tree, pointers) for rule in contract.reading.data]
    vectors = {*plan.lengths, *own.values()}
    return tuple(limit for limit in limits_in(trees, tensors) if limit.name in vectors)


@lru_cache(maxsize=64)
def joined_by(contract: Contract) -> dict[str, str]:
    """Return tensors of lengths that sequences have already, with what joins them: `before + added <= room` holds."""
    plan = plan_of(contract)
    found: dict[str, str] = {}
    limits = [each for each in limits_on_lengths(contract) if each.name in plan.lengths and each.op in BELOW]
    for limit in sorted(limits, key=lambda each: plan.roles[each.name].group == "q"):
        less = {ast.unparse(tree) for added, tree in terms_of(limit.value, added=True) if not added}
        others = {*plan.lengths, *(steps_of(pointer.name) for pointer in plan.pointers)} - {limit.name, *found}
        if limit.name not in found.values() and (joining := sorted(less & others)):
            found[limit.name] = joining[0]
    return found


@lru_cache(maxsize=64)
def never_outnumber(contract: Contract) -> bool:
    """Whether constraints say that no sequence has more queries than keys."""
    plan = plan_of(contract)
    groups = {p.name if p.counted else steps_of(p.name): p.group for p in plan.pointers}
    groups |= {name: plan.roles[name].group for name in plan.lengths}
    pairs = ((limit, names_of(limit.value)) for limit in limits_on_lengths(contract))
    return _by_turns(contract) or any(
        groups.get(limit.name) == "q" and limit.op in BELOW and any(groups.get(name) == "kv" for name in names)
        for limit, names in pairs
    )


def _by_turns(contract: Contract) -> bool:
    """Whether constraints compare, sequence by sequence, segments of queries with what is in the pages."""
    plan = plan_of(contract)
    queries, keys = plan.pointer("q"), plan.pointer("kv")
    if queries is None or keys is None or keys.unit != "pages":
        return False
    rules = [rule for rule in contract.reading.data if {queries.name, keys.name} <= rule.names]
    return any(isinstance(node, ast.GeneratorExp | ast.ListComp) for rule in rules for node in ast.walk(rule.tree))


def tell_lengths(setting: Setting, found: Sequences) -> None:
    """Fill in `found.told`: lengths for each tensor that states some, within what constraints allow.

    Where constraints compare lengths, those that were drawn change until these hold; what splits a total keeps its
    sum. Where no lengths hold all that is said, some of it stays broken.
    """
    owners: dict[str, str] = {}
    joining = joined_by(setting.contract)
    for name in setting.plan.lengths:
        if name in setting.given:
            continue
        group = "q" if setting.plan.roles[name].group == "q" or (found.kv is None and found.q is not None) else "kv"
        known = getattr(found, group)
        if known is not None and known is found.segments.get(pointers_of(joining.get(name, "")) or ""):
            known = None  # these are of what joins
        if known is not None and group not in owners.values() and len(known) == math.prod(setting.shape(name)):
            owners[name] = group
        found.told[name] = _own_lengths(setting, name, found, known if _follows(setting, name, owners) else None)
    limits = limits_on_lengths(setting.contract)
    if limits:
        _agree(setting, found, limits, owners)
    _reach_peaks(setting, found)
    _reach_totals(setting, found)
    for name, group in owners.items():
        setattr(found, group, found.told[name])
    for name, other in joining.items():  # pages hold what a sequence had before and what joins it
        before, added = _said(setting, found, name), _said(setting, found, other)
        if before and added and len(before) == len(added):
            found.kv = [n + m for n, m in zip(before, added, strict=True)]


def _said(setting: Setting, found: Sequences, name: str) -> list[int] | None:
    """Return the lengths that a tensor states, or the pointers whose steps have this name."""
    if name in setting.given:
        return [int(n) for n in setting.given[name].flatten().tolist()]
    return found.told.get(name) or found.segments.get(pointers_of(name) or "")


def _follows(setting: Setting, name: str, owners: Mapping[str, str]) -> bool:
    """Whether a tensor says the same as others of its group: the first does, and what no constraint compares."""
    lengths = {*setting.plan.lengths, *(p.name for p in setting.plan.pointers)}
    lengths |= {steps_of(pointer.name) for pointer in setting.plan.pointers}
    between = (limit.name for limit in limits_on_lengths(setting.contract) if names_of(limit.value) & lengths)
    return name in owners or name not in between


def _own_lengths(setting: Setting, name: str, found: Sequences, known: list[int] | None) -> list[int]:
    count = math.prod(setting.shape(name))
    low, high = setting.limits(name)
    if known is None or len(known) != count:
        joined = name in joined_by(setting.contract)
        top = high if high is not None else capacity(setting, found) if joined else _top(setting, name, found)
        options = telling(found.page_size if joined else 1, max(0, min(low or 0, top)), max(0, top), setting.rng)
        known = arranged(options, count, setting.structure, 1, setting.rng)
    return [_clamp(n, low, high) for n in known]


def _top(setting: Setting, name: str, found: Sequences) -> int:
    """Return the greatest length of a tensor that nothing bounds: no more queries than a sequence has keys."""
    if setting.plan.roles[name].group == "q" and found.kv:
        return min(found.kv)
    return max(found.kv or found.q or [USUAL])


def _clamp(value: int, low: int | None, high: int | None) -> int:
    value = value if high is None else min(value, high)
    return value if low is None else max(value, low)


def _agree(setting: Setting, found: Sequences, limits: tuple[Limit, ...], owners: Mapping[str, str]) -> None:
    vectors = _vectors(setting, found, owners)
    env: dict[str, Any] = {**setting.env, **readable(setting.given)}
    for name, vector in vectors.items():
        shape = setting.shape(name) if name in found.told else (-1,)
        env[name] = torch.tensor(vector.lengths, dtype=torch.int64).view(shape)
    free = [limit for limit in limits if limit.name in vectors and not vectors[limit.name].fixed]
    for _ in range(_ROUNDS):
        changed = put_right(env, free)
        changed |= {name for name, vector in vectors.items() if vector.fixed and _moved(setting.rng, env, name, limits)}
        if not changed:
            break
    for name, vector in vectors.items():
        vector.lengths[:] = env[name].flatten().tolist()


def _reach_peaks(setting: Setting, found: Sequences) -> None:
    """Have the longest be as long as constraints say, `n == lens.max()`: of a total, others get shorter for it."""
    for name, tree in setting.contract.reading.facts.peaks.items():
        lengths, peak = found.told.get(name) or found.segments.get(name), setting.size(tree)
        if not lengths or peak is None or name in setting.given:
            continue
        top = max(range(len(lengths)), key=lengths.__getitem__)
        missing, lengths[top] = max(0, peak - lengths[top]), max(peak, lengths[top])
        pointer = next((each for each in setting.plan.pointers if each.name == name), None)
        shortest = parts_of(setting.contract, pointer)[0] if pointer is not None else ()
        least = max((setting.size(tree) or 0 for tree in shortest), default=0)
        for i in range(len(lengths)) if name in found.segments else ():
            step = min(missing, max(0, lengths[i] - least)) if i != top else 0
            lengths[i] -= step
            missing -= step


def _reach_totals(setting: Setting, found: Sequences) -> None:
    """Have lengths sum to what a workload says that only the result has, `total == lens.sum()` of rows put out."""
    for name, tree in setting.contract.reading.facts.sums.items():
        lengths, total = found.told.get(name), setting.size(tree)
        if lengths is None or total is None or sum(lengths) == total:
            continue
        low, high = setting.limits(name)
        most = min((n for n in (high, *rooms(setting, found)) if n is not None), default=total)
        parts = partition(total, len(lengths), setting.structure, setting.rng, [max(0, most)] * len(lengths))
        found.told[name] = floored(parts, low or 0)


def _vectors(setting: Setting, found: Sequences, owners: Mapping[str, str]) -> dict[str, _Vector]:
    """Return what may change: tensors of lengths, and segments, by what conditions call them."""
    vectors = {name: _Vector(own, owners.get(name) in found.tied) for name, own in found.told.items()}
    for pointer in setting.plan.pointers:
        tokens = pointer.unit == "tokens" and (pointer.counted or not pointer.open)
        if tokens and pointer.name not in setting.given:
            name = pointer.name if pointer.counted else steps_of(pointer.name)
            vectors[name] = _Vector(found.segments[pointer.name], fixed=pointer.total is not None)
    return vectors


def _moved(rng: Random, env: dict[str, Any], name: str, limits: tuple[Limit, ...]) -> bool:
    """Move lengths between the segments of a total so that each is within its limits; say whether any changed."""
    x = env[name]
    box = Box.of(x)
    box.narrow(env, [limit for limit in limits if limit.name == name], x)
    if not x.numel() or not bool(box.bad.any()):
        return False
    low, high = (end.expand(x.shape).tolist() for end in (box.low, box.high))
    lengths = [min(max(n, least, 0), max(most, 0)) for n, least, most in zip(x.tolist(), low, high, strict=True)]
    missing = int(x.sum()) - sum(lengths)
    for i in rng.sample(range(len(lengths)), len(lengths)):
        step = min(missing, high[i] - lengths[i]) if missing > 0 else -min(-missing, lengths[i] - max(low[i], 0))
        step = max(step, 0) if missing > 0 else min(step, 0)
        lengths[i] += step
        missing -= step
    lengths[-1] += missing
    moved = torch.tensor(lengths, dtype=x.dtype)
    changed = not torch.equal(moved, x)
    env[name] = moved
    return changed
