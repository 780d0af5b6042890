"""Integers of rows: the sequence and the position of each, and what `row_roles` knows: amounts, orders, blocks."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.integers import indices, unused
from pytest_flashinfer.inputs.integers.bits import bits
from pytest_flashinfer.inputs.integers.similar_ids import ids_alike
from pytest_flashinfer.inputs.roles.row_roles import block_size, start_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting

_FAR: Final = 5  # one case in so many has far positions where nothing bounds them: a token of a long context
_HOW_FAR: Final = (12, 15)  # as powers of two
_UNSORTED: Final = re.compile(r"\b(any|no|arbitrary)( particular)? order|unsorted|not( be| necessarily)* sorted")
_SORTED: Final = re.compile(
    r"\bsort|order|ascend|non-?decreas|increas|monoton|never falls?|group(ed|s) by|consecutive|contiguous|one after"
)


def _rows(found: Sequences, count: int, most: int = 0) -> list[int] | None:
    """Return lengths of sequences, of no more than `most` unless that is 0, that cover `count` rows, if some do."""
    options = [found.q, found.kv, *found.segments.values()]
    fitting = (n for n in options if n is not None and sum(n) == count and not 0 < most < len(n))
    return next(fitting, None)


def batch_ids(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return the sequence of each row; rows of none are marked, where the contract has such."""
    del device
    ids = _sequence_of_rows(setting, name, found)
    unused.mark(setting, name, ids)
    return ids


def _sequence_of_rows(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    count = math.prod(setting.shape(name))
    table = next((setting.shape(n)[0] for n in setting.plan.of("page_table")), 0)
    lengths = _rows(found, count, table)
    if lengths is not None:
        repeats = torch.tensor(lengths, dtype=torch.int64)
        return torch.arange(len(lengths)).repeat_interleave(repeats).view(setting.shape(name))
    none, room = setting.plan.roles[name].unused, sum(found.kv or ())
    if found.kv and (room >= count or none) and not 0 < table < len(found.kv):
        rows = setting.rng.sample([b for b, length in enumerate(found.kv) for _ in range(length)], min(count, room))
        rows += none[:1] * (count - len(rows))
    else:
        limit = max(1, table or found.count or _outer(setting, name))
        rows = [setting.rng.randrange(limit) for _ in range(count)]
    ids = torch.tensor(rows, dtype=torch.int64).view(setting.shape(name))
    if setting.rng.randrange(2) and _any_order(setting, name) and unused.hold(setting, name, ids):
        return ids
    given = ids.flatten() >= 0
    return torch.cat([ids.flatten()[given].sort().values, ids.flatten()[~given]]).view(ids.shape)


def _any_order(setting: Setting, name: str) -> bool:
    """Whether rows of tokens may come in any order: each has a position beside it, and no description says sorted."""
    inputs = setting.contract.definition.inputs
    beside = [n for n in setting.plan.of("positions") if inputs[n].shape == inputs[name].shape]
    told = (setting.contract.definition.description, *(inputs[n].description for n in (name, *beside)))
    text = _UNSORTED.sub("", " ".join(filter(None, told)).lower())
    return bool(beside) and name not in setting.contract.reading.facts.rising and _SORTED.search(text) is None


def _outer(setting: Setting, name: str) -> int:
    """Return the leading size of an output that is not the ids' own: the rows that they sum into."""
    own = setting.shape(name)[0]
    leading = [setting.size(trees[0]) for trees in setting.contract.output_dims.values() if trees]
    return next((n for n in leading if n is not None and n != own), own)


def positions(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return positions: those within their sequences where rows belong to some, else any that the table has."""
    shape, limit = setting.shape(name), setting.limit(name)
    batch = next((setting.given[n] for n in setting.plan.of("batch_ids") if n in setting.given), None)
    if batch is not None and tuple(batch.shape) == shape and found.kv:
        most = [kv if limit is None else min(kv, limit) for kv in found.kv]
        seen: dict[int, list[int]] = {}
        places = []
        for row in batch.flatten().tolist():
            if row < 0:  # of no sequence: nobody reads where it would go
                places.append(setting.rng.randrange(max([1, *most])))
                continue
            left = seen.setdefault(row, setting.rng.sample(range(most[row]), most[row]))
            places.append(left.pop() if left else 0)
        return torch.tensor(places, dtype=torch.int64).view(shape)
    lengths = _rows(found, math.prod(shape)) if len(shape) == 1 else None
    if lengths and found.kv and len(found.kv) == len(lengths) and (limit is None or limit > max(found.kv)):
        starts = [max(0, kv - n) for kv, n in zip(found.kv, lengths, strict=True)]
        places = [start + i for start, n in zip(starts, lengths, strict=True) for i in range(n)]
        return torch.tensor(places, dtype=torch.int64)
    ids = ids_alike(setting, name, limit, device)
    if limit is None and setting.limits(name)[1] is None and not setting.rng.randrange(_FAR):
        far = min(1 << setting.rng.randint(*_HOW_FAR), setting.ends(name)[1] - int(ids.max()) if ids.numel() else 0)
        ids += setting.rng.randint(0, max(far, 0)) * (ids >= 0)
    return ids


def _order(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return one permutation of all elements, where that is told or the range is theirs, else one for each last axis.

    A range of more has each of its values once at most, one of less may have them several times.
    """
    del found
    shape, (low, high) = setting.shape(name), setting.limits(name)
    first = max(0, low or 0)
    count, width = math.prod(shape), shape[-1] if shape else 1
    room = None if high is None else max(0, high + 1 - first)
    everything = len(shape) < 2 or setting.plan.roles[name].group == "all"  # noqa: PLR2004 - a single row
    if room is not None and count:
        everything = room >= count if width < room else everything and room >= count
    if everything:
        return indices.sample(setting, count, max(count, room or 0)).view(shape) + first
    if room is not None and room < width:
        return indices.uniform_ids(setting, name, None, device)
    ids = indices.distinct_rows(setting, math.prod(shape[:-1]), width, room or width, device)
    return ids.view(shape) + first


def _amounts(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    del found
    most = setting.limit(name) or 0
    return indices.uniform_ids(setting, name, most + 1, device)


def _ends(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return where windows end: within the keys of the row's sequence, and after the first of them, or in the row."""
    count = setting.shape(name)[0]
    inclusive = "inclusive" in (setting.contract.definition.inputs[name].description or "").lower()
    if not found.kv:
        return _ends_in_rows(setting, name, device, inclusive=inclusive)
    rows = _rows_of_queries(found, count)
    lengths = [kv for _, _, kv in rows] if rows is not None else [min(found.kv)] * count
    last = [setting.rng.randint(1, n) - inclusive if n else 0 for n in lengths]
    return torch.tensor(last, dtype=torch.int64)


def _ends_in_rows(setting: Setting, name: str, device: torch.device, *, inclusive: bool) -> torch.Tensor:
    """Return ends anywhere in a row, or where constraints allow them; none is before its start."""
    width, first = setting.size(setting.plan.roles[name].axis), start_of(name)
    limit = None if width is None or setting.limits(name)[1] is not None else max(1, width + 1 - inclusive)
    ids = indices.uniform_ids(setting, name, limit, device)
    begins = setting.given.get(first, torch.full_like(ids, max(0, setting.limits(first)[0] or 0))).to(device)
    last = torch.maximum(ids, begins.to(ids.dtype))
    known = replace(setting, given={**setting.given, first: begins.cpu()})
    return last if unused.hold(known, name, last) else torch.maximum(last, begins + 1)


def _starts(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return where windows start: at 0 in a sequence, else anywhere up to where they end."""
    low, high = setting.limits(name)
    least = torch.full(setting.shape(name), max(0, low or 0), dtype=torch.int64, device=device)
    after = next((n for n in setting.plan.of("ends") if start_of(n) == name and n in setting.given), None)
    if found.kv or after is None:
        return least
    room = setting.given[after].to(device, torch.int64) - least + 1
    generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
    begins = least + (torch.rand(room.shape, generator=generator, device=device) * room).long().clamp_(min=0)
    begins = begins if high is None else torch.maximum(least, begins.clamp(max=high))
    known = replace(setting, given={n: values.cpu() for n, values in setting.given.items()})
    options = (begins, torch.maximum(least, torch.minimum(begins, least + room - 2)))  # windows may have to hold some
    return next((option for option in options if unused.hold(known, name, option)), least)


def _rows_of_queries(found: Sequences, count: int) -> list[tuple[int, int, int]] | None:
    """Return for each row of queries its place, how many there are in its sequence, and how many keys that has."""
    keys = found.kv
    if not keys:
        return None
    queries = found.q if found.q is not None and sum(found.q) == count else None
    if queries is None and count % len(keys) == 0:
        queries = [count // len(keys)] * len(keys)
    if queries is None or len(queries) != len(keys):
        return None
    return [(i, n, kv) for n, kv in zip(queries, keys, strict=True) for i in range(n)]


def _blocks(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return rising ids of blocks that a query may see with a causal mask, then -1; one at least where there is any."""
    del device
    shape, each = setting.shape(name), block_size(setting.contract) or 1
    out = torch.full(shape, -1, dtype=torch.int64)
    place = next((i for i in range(len(shape) - 2, -1, -1) if _rows_of_queries(found, shape[i])), None)
    if place is None or not out.numel():
        return out
    rows = _rows_of_queries(found, shape[place]) or []
    lines = out.movedim(place, 0).flatten(1, -2) if len(shape) > 2 else out.unsqueeze(1)  # noqa: PLR2004
    for line, (i, n, keys) in zip(lines, rows, strict=True):
        seen = max(0, keys - n + i + 1) or keys
        have = min(shape[-1], -(-seen // each))
        for row in line:
            some = setting.rng.choice((have, setting.rng.randint(1, have), 1)) if have else 0
            row[:some] = torch.tensor(sorted(setting.rng.sample(range(-(-seen // each)), some)), dtype=torch.int64)
    return out


OF_ROWS: Final[dict[str, Callable[[Setting, str, Sequences, torch.device], torch.Tensor]]] = {
    "batch_ids": batch_ids,
    "positions": positions,
    "order": _order,
    "amounts": _amounts,
    "ends": _ends,
    "starts": _starts,
    "blocks": _blocks,
    "bits": bits,
}
