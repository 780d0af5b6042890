"""How long the sequences of a batch are: in pages, in tokens, and how many of those are queries."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.joint_lengths import joined_by, never_outnumber
from pytest_flashinfer.inputs.constraints.limits import limits
from pytest_flashinfer.inputs.dtypes import is_integer, torch_dtype
from pytest_flashinfer.inputs.integers import lengths, queries
from pytest_flashinfer.inputs.integers.partition import floored, partition
from pytest_flashinfer.inputs.integers.segments import count_of, split

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.pointers import Pointer

_PAGE: Final = 16  # tokens of a page whose size no shape shows, as where each page holds one state
_UNCAPPED: Final = frozenset({"q_longer", "no_kv"})  # structures in which queries may outnumber keys


@dataclass(frozen=True, slots=True)
class Setting:
    """All that index tensors are drawn from; `env` holds sizes and scalars, `given` the tensors that are fixed."""

    contract: Contract
    plan: Plan
    env: dict[str, Any]
    structure: str
    seed: int
    rng: Random
    given: Mapping[str, torch.Tensor]

    def size(self, tree: ast.expr | None) -> int | None:
        """Return the whole number that a tree gives, or `None` where something in it is not known."""
        return size(tree, self.env)

    def limits(self, name: str) -> tuple[int | None, int | None]:
        """Return the least and the greatest value that constraints allow in a tensor, of those that its dtype has."""
        low, high = limits(self.contract, name, self.env)
        least, most = self.ends(name)
        return None if low is None else max(low, least), None if high is None else min(high, most)

    def ends(self, name: str) -> tuple[int, int]:
        """Return the least and the greatest whole number that the dtype of a tensor has."""
        dtype = self.contract.dtype(name)
        ends = torch.iinfo(torch_dtype(dtype) if is_integer(dtype) else torch.int64)
        return ends.min, ends.max

    def limit(self, name: str) -> int | None:
        """Return what ids stay below: what they point at has as many entries, or the dtype has no more numbers."""
        own = self.size(self.plan.roles[name].limit)
        return None if own is None else min(own, self.ends(name)[1] + 1)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an input whose sizes are all known."""
        return tuple(self.size(tree) or 0 for tree in self.contract.dims[name] or ())


@dataclass(slots=True)
class Sequences:
    """Lengths of each sequence; `None` where the definition has no such thing."""

    count: int = 0
    page_size: int = 1
    pages: list[int] | None = None
    last: list[int] | None = None
    kv: list[int] | None = None
    q: list[int] | None = None
    segments: dict[str, list[int]] = field(default_factory=dict)
    told: dict[str, list[int]] = field(default_factory=dict)  # what each tensor of lengths says
    tied: set[str] = field(default_factory=set)  # the groups, kv and q, whose lengths have to add up to an axis


def draw_sequences(setting: Setting) -> Sequences:
    """Draw all lengths; those that `given` tensors state are taken from them.

    Raises AxisConflict where a total has to be split among no sequences.
    """
    plan = setting.plan
    untold = _PAGE if plan.last_page and plan.page_size is None else 1
    found = Sequences(max(0, setting.size(plan.batch) or 0), setting.size(plan.page_size) or untold)
    kv = plan.pointer("kv") or (plan.pointer("plain") if plan.pages or plan.pointer("q") else None)
    if kv is not None:
        _draw_keys(setting, kv, found)
    elif (rows := queries.split_rows(setting.contract, plan, "kv")) is not None and not _stated(setting, "kv"):
        found.kv = partition(setting.size(rows) or 0, found.count, setting.structure, setting.rng)
        found.tied.add("kv")
    elif plan.lengths or plan.of("page_table"):
        found.kv = _draw_lengths(setting, found)
    query = plan.pointer("q") or (None if kv and kv.group == "plain" else plan.pointer("plain"))
    if query is not None:
        found.q = found.segments[query.name] = _draw_queries(setting, query, found)
    elif queries.told_lengths(plan, "q") and not _stated(setting, "q"):
        rows = queries.split_rows(setting.contract, plan, "q")
        if rows is not None:
            caps = None if joined_by(setting.contract) else found.kv
            found.q = partition(setting.size(rows) or 0, found.count, setting.structure, setting.rng, caps)
            found.tied.add("q")
    for pointer in sorted(plan.pointers, key=lambda each: each.name not in setting.given):
        if pointer.name not in found.segments:
            wanted = _wanted(setting, "q") if pointer.group == "kv" else 0
            known = None if pointer.name in setting.given else _said_already(setting, pointer, found)
            found.segments[pointer.name] = known or split(setting, pointer, None, wanted)
    return found


def _said_already(setting: Setting, pointer: Pointer, found: Sequences) -> list[int] | None:
    """Return the segments of pointers to the same total, where these or those are lengths: both say the same."""
    total = "" if pointer.total is None else ast.unparse(pointer.total)
    for other in setting.plan.pointers if total else ():
        same = other.total is not None and ast.unparse(other.total) == total
        groups = {other.group, pointer.group}
        fits = pointer.counted is not other.counted and (len(groups) == 1 or "plain" in groups)
        lengths = found.segments.get(other.name, [])
        if same and fits and len(lengths) == count_of(setting, pointer):
            return list(lengths)
    return None


def _stated(setting: Setting, group: str) -> bool:
    """Whether a fixed tensor states the lengths of this group."""
    return any(n in setting.given for n in setting.plan.lengths if setting.plan.roles[n].group == group)


def _draw_keys(setting: Setting, pointer: Pointer, found: Sequences) -> None:
    tables = (pointer.total is None or pointer.counted) and bool(setting.plan.of("page_table"))
    caps = [queries.capacity(setting, found)] * count_of(setting, pointer) if tables else None
    parts = split(setting, pointer, caps, _wanted(setting, "q") if pointer.group == "kv" else 0)
    if _never_empty(setting) and pointer.name not in setting.given:
        parts = floored(parts, 1)
    if pointer.unit == "tokens":
        if pointer.name not in setting.given:
            parts = floored(parts, queries.each(setting, found), none=True)
        found.kv = found.segments[pointer.name] = parts
        return
    found.segments[pointer.name] = parts
    found.pages, name = parts, setting.plan.last_page
    if name is not None and name in setting.given:
        found.last = [int(n) for n in setting.given[name].tolist()]
    else:
        found.last = _last_pages(setting, parts, found.page_size, _wanted(setting, "q"))
    found.kv = [(p - 1) * found.page_size + last if p else 0 for p, last in zip(parts, found.last, strict=False)]


def _never_empty(setting: Setting) -> bool:
    """Whether a description says that the last page of every sequence has a token at least: `in [1, page_size]`.

    None speaks of empty sequences then, of which that is not said.
    """
    told = setting.contract.told_ranges.get(setting.plan.last_page or "")
    if told is not None and setting.plan.promises.speaks_of_empty:
        return False
    return told is not None and (max((setting.size(tree) or 0 for tree in told.lower), default=0)) > 0


def _wanted(setting: Setting, *groups: str) -> int:
    """Return how many keys there have to be: one for each query, and for each row that is appended."""
    query = setting.plan.pointer(*groups)
    split = queries.split_rows(setting.contract, setting.plan, "q")
    rows = [math.prod(setting.shape(name)) for name in setting.plan.of("batch_ids")]
    return max((setting.size(query.total) or 0) if query else 0, setting.size(split) or 0, *rows, 0)


def _last_pages(setting: Setting, pages: list[int], page: int, wanted: int) -> list[int]:
    """Draw how full each last page is; enough of them in all to hold `wanted` tokens."""
    rng = setting.rng
    fixed = {"full_last_page": [page], "one_token_page": [1]}.get(setting.structure)
    cycle = fixed or [rng.randint(1, page), page, 1, max(1, page - 1)]
    start = rng.randrange(len(cycle))
    filled = [i for i, p in enumerate(pages) if p > 0]
    last = [0] * len(pages)
    for k, i in enumerate(filled):
        last[i] = cycle[(start + k) % len(cycle)]
    missing = wanted - sum((p - 1) * page + n for p, n in zip(pages, last, strict=True) if p)
    return lengths.raised(last, missing, [page if p else 0 for p in pages])


def _draw_queries(setting: Setting, pointer: Pointer, found: Sequences) -> list[int]:
    """Split the queries so that no sequence has more of them than keys: a causal mask would leave rows empty.

    Keys that are there before those of the queries join them may be fewer.
    """
    more = setting.structure in _UNCAPPED and not never_outnumber(setting.contract)
    caps = None if more or joined_by(setting.contract) else found.kv
    if caps is not None and len(caps) != count_of(setting, pointer):
        caps = None
    if more and setting.structure == "q_longer" and found.kv and pointer.name not in setting.given:
        return _outnumber(split(setting, pointer), found.kv)
    if caps is None or setting.structure != "q_equals_kv" or pointer.name in setting.given:
        return split(setting, pointer, caps)
    parts, left = [], setting.size(pointer.total)
    left = sum(caps) if left is None else left
    for cap in caps:
        parts.append(min(cap, left))
        left -= parts[-1]
    if parts:
        parts[-1] += left
    return parts


def _outnumber(queries: list[int], keys: list[int]) -> list[int]:
    """Move queries to the sequence with the fewest keys, but some, until it has one more of them than keys."""
    least = min((i for i, n in enumerate(keys[: len(queries)]) if n), key=lambda i: keys[i], default=None)
    if least is None:
        return queries
    for i in range(len(queries)):
        moved = min(max(keys[least] + 1 - queries[least], 0), queries[i]) if i != least else 0
        queries[i] -= moved
        queries[least] += moved
    return queries


def _draw_lengths(setting: Setting, found: Sequences) -> list[int]:
    """Draw key lengths where only a tensor of lengths or a page table states them."""
    plan = setting.plan
    name = next((n for n in plan.lengths if plan.roles[n].group != "q"), next(iter(plan.lengths), None))
    if name is not None and name in setting.given:
        return [int(n) for n in setting.given[name].flatten().tolist()]
    low, high = setting.limits(name) if name else (None, None)
    room = queries.capacity(setting, found, high)
    high = min(n for n in (high, room, setting.ends(name)[1] if name else None) if n is not None)
    low = min(max(low or 0, 0), high)
    options = lengths.telling(found.page_size, low, high, setting.rng)
    drawn = lengths.arranged(options, found.count, setting.structure, found.page_size, setting.rng)
    if setting.structure == "full_last_page":
        drawn = [min(high, -(-n // found.page_size) * found.page_size) for n in drawn]
    least = queries.least_keys(setting, found)
    drawn = [min(high, max(n, least)) if n else 0 for n in drawn]
    most = [high if n or least == 1 else 0 for n in drawn]  # a key for each query, or none at all
    return lengths.raised(drawn, _wanted(setting, "q", "plain") - sum(drawn), most)
