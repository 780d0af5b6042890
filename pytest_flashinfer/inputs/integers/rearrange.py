"""Other index tensors for as much work: ids that point at other rows of the same pools, sequences in another order."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs import layout
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import is_float
from pytest_flashinfer.inputs.integers import unused
from pytest_flashinfer.inputs.integers.structure import setting_for
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles.packed_integers import BYTE_KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.integers.sequences import Setting

_POOLED: Final = frozenset({"page_ids", "page_table", "slots", "sparse"})  # any row of the pool is as good as another
_IDS: Final = _POOLED | {"token_ids", "expert_ids", "index", "order", "positions"}
_OF_SEQUENCES: Final = frozenset({"indptr", "last_page_len", "seq_lens"})
_APART: Final = BYTE_KINDS | {"zeros", "seed"}  # integers that say nothing of sequences
_LARGEST: Final = 1 << 22  # more rows are not listed

Tensors = dict[str, torch.Tensor]


def rearranged(  # noqa: PLR0913 - inputs, what they are for, and how to change them
    definition: Definition, axes: Mapping[str, Any], inputs: Mapping[str, Any], seed: int, *,
    shift: bool = False, stored: Collection[str] = (),
) -> Tensors:  # fmt: skip
    """Return index tensors in place of some of `inputs`, for calls that do as much; none where there are no others.

    Ids are mapped one to one onto the rows that they may point at: what is distinct, shared or unused stays so. The
    first, the middle and the last of a tensor stay, where others change; with `shift` all move by as many rows, so
    that neighbours stay neighbours. Where there are no ids sequences change places; else lengths stay, by which alone a
    plan may be kept, but for some seeds those of last pages, whose sum stays. Of `stored` tensors only those that point
    into pools change: others may belong together.
    """
    setting, known = setting_of(definition, axes, inputs, seed)
    given = setting.given
    found = _pointed(setting, movable(setting, stored), shift=shift) or _reordered(setting, known.keys())
    if not shift and not stored and setting.rng.randrange(2):
        found |= _last_pages(setting)
    changed = {name: values for name, values in found.items() if not torch.equal(values, given[name])}
    setting = replace(setting, given={**given, **changed})
    if not all(unused.hold(setting, name, values) for name, values in changed.items()):
        return {}
    return {name: layout.like(known[name], values.to(known[name])) for name, values in changed.items()}


def setting_of(
    definition: Definition, axes: Mapping[str, Any], inputs: Mapping[str, Any], seed: int
) -> tuple[Setting, Tensors]:
    """Return what other index tensors are made from, with those of `inputs` on the host, and all tensors."""
    contract, known = contract_of(definition), {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor)}
    plan, env = plan_of(contract), {**contract.constants, **axes}
    env.update({name: value for name, value in inputs.items() if isinstance(value, int | float | str)})
    kinds = _IDS | _OF_SEQUENCES | {"batch_ids"}
    given = {n: v.cpu() for n, v in known.items() if n in plan.roles and plan.roles[n].kind in kinds and v.numel()}
    setting = setting_for(contract, plan, env, Recipe(seed), given)
    return replace(setting, rng=Random(f"{seed}/rearranged")), known  # noqa: S311 - not for secrets


def movable(setting: Setting, stored: Collection[str]) -> list[str]:
    """Return the inputs whose ids may point elsewhere.

    Not positions in sequences, nor experts of which some are held elsewhere; and not slots beside pages, for the pages
    may say which slots are to be written.
    """
    plan, contract = setting.plan, setting.contract
    kinds = {plan.roles[name].kind for name in setting.given}
    never = set()
    if plan.pointers or plan.lengths or "batch_ids" in kinds:
        never.add("positions")
    if any(re.search("local|offset", name) for name in (*contract.constants, *contract.definition.inputs)):
        never.add("expert_ids")
    if "slots" in kinds and kinds & {"page_ids", "page_table"}:
        never |= _POOLED
    return [
        name
        for name in setting.given
        if plan.roles[name].kind in (_POOLED if name in stored else _IDS) - never
        and name not in contract.reading.facts.rising
    ]


def _pointed(setting: Setting, names: Iterable[str], *, shift: bool) -> Tensors:
    """Return ids that point at other rows; those of tensors that point at the same rows, in the same way."""
    groups: dict[str, list[str]] = {}
    for name in names:
        limit = setting.plan.roles[name].limit
        groups.setdefault(name if limit is None else ast.unparse(limit), []).append(name)
    found: Tensors = {}
    for group in groups.values():
        every = targets(setting, group)
        old = [setting.given[name] for name in group]
        if len(every) > 1:
            found.update(zip(group, _mapped(old, every, setting.rng, shift=shift), strict=True))
    return found


def targets(setting: Setting, group: list[str]) -> torch.Tensor:
    """Return what ids of these tensors may be, ascending; what they are where nothing else is known to be right."""
    low, top = 0, _LARGEST
    marks: set[int] = set()
    for name in group:
        role, (least, most) = setting.plan.roles[name], setting.limits(name)
        ends = [n for n in (setting.limit(name), None if most is None else most + 1) if n is not None]
        low, top = max(low, least or 0), min([top, *ends] if ends and role.kind != "order" else [0])
        marks |= set(unused.marks(setting, name))
    used = torch.cat([setting.given[name].flatten().long() for name in group])
    if low < top and int(used.max()) < top:
        every = torch.arange(low, top)
    else:
        every = torch.unique(used[(used >= low) & (used < _LARGEST)])
    return every[~torch.isin(every, torch.tensor(sorted(marks), dtype=torch.int64))]


def _mapped(tensors: list[torch.Tensor], targets: torch.Tensor, rng: Random, *, shift: bool) -> list[torch.Tensor]:
    """Return tensors in which each target has become another, but for the ends of tensors that have others."""
    if shift:
        return _looked_up(tensors, targets, targets.roll(rng.randrange(1, len(targets))))
    ends = torch.cat([each.flatten()[[0, each.numel() // 2, -1]].long() for each in tensors])
    inner = _looked_up(tensors, *_circle(targets[~torch.isin(targets, ends)], rng))
    if any(not torch.equal(new, old) for new, old in zip(inner, tensors, strict=True)):
        return inner
    return _looked_up(tensors, *_circle(targets, rng))


def _circle(targets: torch.Tensor, rng: Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Return targets, and what takes the place of each: none stays, for all are in one circle of random order."""
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(rng.getrandbits(48)))
    return targets[order], targets[order.roll(1)]


def _looked_up(tensors: list[torch.Tensor], before: torch.Tensor, after: torch.Tensor) -> list[torch.Tensor]:
    """Return tensors with `after` in place of `before`; what is not among these stays."""
    if not len(before):
        return tensors
    table = torch.arange(int(before.max()) + 1)
    table[before] = after
    flat = [each.long() for each in tensors]
    inside = [(each >= 0) & (each < len(table)) for each in flat]
    new = [torch.where(at, table[each.clamp(0, len(table) - 1)], each) for at, each in zip(inside, flat, strict=True)]
    return [each.to(old.dtype) for each, old in zip(new, tensors, strict=True)]


def _reordered(setting: Setting, inputs: Collection[str]) -> Tensors:
    """Return what says of sequences how long they are and where they lie, with the sequences in another order.

    Nothing where other index tensors say something of sequences as well.
    """
    plan, tensors = setting.plan, setting.given
    kinds = {name: role.kind for name, role in plan.roles.items() if name in inputs and not _is_plain(setting, name)}
    counts = {len(tensors[name]) - (kinds[name] == "indptr") for name in tensors}
    strange = any(kind not in _OF_SEQUENCES for kind in kinds.values())
    strange = strange or any(pointer.open and not pointer.counted for pointer in plan.pointers)
    if strange or len(counts) != 1 or any(each.dim() > 1 for each in tensors.values()):
        return {}
    count = counts.pop()
    before, after = _circle(torch.arange(count), setting.rng)
    order = torch.empty(count, dtype=torch.int64)
    order[before] = after
    return {name: _in_order(tensors[name], order, pointers=kinds[name] == "indptr") for name in tensors}


def _last_pages(setting: Setting) -> Tensors:
    """Return lengths of last pages that have changed places, where nothing else says anything of tokens."""
    name, kinds = setting.plan.last_page or "", {setting.plan.roles[each].kind for each in setting.given}
    queries = setting.plan.pointer("q") is not None or bool(setting.plan.lengths)
    if name not in setting.given or kinds - {"indptr", "last_page_len", "page_ids"} or queries:
        return {}
    values = setting.given[name].clone()
    filled = values.nonzero().flatten()
    values[filled] = values[filled].roll(1)
    return {name: values}


def _is_plain(setting: Setting, name: str) -> bool:
    """Whether a tensor holds values and no indices."""
    dtype = setting.contract.dtype(name)
    return setting.plan.roles[name].kind in _APART or is_float(dtype)


def _in_order(values: torch.Tensor, order: torch.Tensor, *, pointers: bool) -> torch.Tensor:
    if not pointers:
        return values[order]
    lengths = values.diff()[order]
    return torch.cat([values[:1], values[0] + lengths.cumsum(0, dtype=values.dtype)])
