"""Index tensors: ids that stay in range, distinct where a cache demands it, and never in order by chance."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.errors import AxisConflict
from pytest_flashinfer.inputs.integers import unused
from pytest_flashinfer.inputs.integers.index_targets import ANY, limit_of
from pytest_flashinfer.inputs.integers.partition import partition
from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Setting

_BIG: Final = 1 << 23  # elements of a table of random keys that are sorted at a time
_TRIES: Final = 16
_FEW: Final = 2  # tokens that occur in `few_ids`
_RANGE: Final = 4  # fewer ids have one order between the first and the last
_ALIKE: Final = 8  # draws, in one of which ids that may repeat look like a range by their ends
_CROWDED: Final = 8  # seeds, by one of which nearly all ids of a tensor are the same
_MANY: Final = 1 << 20  # ids of which few are drawn one by one


def sample(setting: Setting, count: int, limit: int) -> torch.Tensor:
    """Return `count` ids below `limit` in random order, distinct where there are enough.

    Never those of `identity`, where others exist. Now and then they look like a range: they fill one, between its ends.
    """
    generator = torch.Generator().manual_seed(setting.rng.getrandbits(48))
    if _RANGE <= count <= limit and not setting.rng.randrange(3):
        inner = 1 + torch.randperm(count - 2, generator=generator)
        inner = inner.roll(1) if torch.equal(inner, inner.sort().values) else inner
        ids = torch.cat([torch.tensor([0]), inner, torch.tensor([count - 1])])
        return ids + setting.rng.randrange(limit - count + 1)
    if limit > max(_MANY, 16 * count):  # a permutation of all would take long
        return torch.tensor(setting.rng.sample(range(limit), count), dtype=torch.int64)
    if count <= limit:
        ids = torch.randperm(limit, generator=generator)
        same = torch.equal(ids[:count], torch.arange(count))
        return (ids.roll(1) if same else ids)[:count]
    return torch.randint(max(limit, 1), (count,), generator=generator)


def distinct_rows(setting: Setting, rows: int, width: int, limit: int, device: torch.device) -> torch.Tensor:
    """Return `rows` rows of `width` distinct ids below `limit` in random order; `width` <= `limit`."""
    generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
    if rows * limit > _BIG and limit > 4 * width:  # too many keys to sort: an arithmetic sequence in a ring is distinct
        steps = torch.randint(1, max(2, limit // max(width, 1)), (rows, 1), generator=generator, device=device)
        starts = torch.randint(limit, (rows, 1), generator=generator, device=device)
        ids = (starts + steps * torch.arange(width, device=device)) % limit
        return ids[:, torch.randperm(width, generator=generator, device=device)]
    out = torch.empty((rows, width), dtype=torch.int64, device=device)
    chunk = max(1, _BIG // max(limit, 1))
    for start in range(0, rows, chunk):
        part = out[start : start + chunk]
        part.copy_(torch.rand((part.shape[0], limit), generator=generator, device=device).argsort(dim=1)[:, :width])
    return out


def sparse(setting: Setting, name: str, device: torch.device) -> torch.Tensor:
    """Return rows of distinct ids with a tail of -1: full rows, short ones and, among many, an empty one.

    Where -1 may stand before ids, in every other draw each row is in any order, or ends with its ids. Of a dtype
    without -1 all rows are full.
    """
    shape, limit = setting.shape(name), limit_of(setting, name)
    rows, width = math.prod(shape[:-1]), shape[-1]
    have = min(width, limit)
    out = torch.full((rows, width), -1, dtype=torch.int64, device=device)
    if not rows or not have:
        return out.view(shape)
    out[:, :have] = distinct_rows(setting, rows, have, limit, device)
    kinds = {"uniform": [have], "empty": [0, 0, have], "single": [1], "one_long": [have, 1]}
    cycle = kinds.get(setting.structure) or [have, setting.rng.randint(1, have), 1, max(1, have - 1)]
    cycle = cycle if setting.ends(name)[0] < 0 else [have]
    lengths = [cycle[i % len(cycle)] for i in range(rows)]
    valid = torch.tensor(lengths, device=device).view(-1, 1)
    out.masked_fill_(torch.arange(width, device=device) >= valid, -1)
    if name in setting.plan.promises.holes and way_of(setting.seed, "holes", 2):
        generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
        order = torch.rand(out.shape, generator=generator, device=device).argsort(dim=1)
        out = out.gather(1, order) if setting.rng.randrange(2) else out.flip(1)
    return out.view(shape)


def counts(setting: Setting, name: str) -> torch.Tensor:
    """Return how many rows each group has: up to the padded axis of the data, else parts of all rows."""
    groups = setting.shape(name)[0]
    for other, role in setting.plan.roles.items():
        shape = setting.shape(other)
        if role.kind == "data" and len(shape) > 2 and shape[0] == groups:  # noqa: PLR2004 - groups, rows, values
            return torch.tensor(
                [setting.rng.choice((0, 1, shape[1], setting.rng.randint(0, shape[1]))) for _ in range(groups)]
            )
    total = next(
        (setting.shape(n)[0] for n, r in setting.plan.roles.items() if r.kind == "data" and setting.shape(n)), 0
    )
    return torch.tensor(partition(total, groups, setting.structure, setting.rng), dtype=torch.int64)


def uniform_ids(setting: Setting, name: str, limit: int | None, device: torch.device) -> torch.Tensor:
    """Return ids anywhere below `limit`, repeats allowed, mostly the first or the last among them; some are unused.

    In the structure `few_ids` tokens are two only, the same in all inputs: by chance no two of a vocabulary are equal.
    By some seeds nearly all indices are one: what is counted or added up by them piles up there.
    """
    shape = setting.shape(name)
    if (stated := _stated(setting, name)) is not None:
        generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
        return stated.to(device)[torch.randint(len(stated), shape, generator=generator, device=device)]
    low, high = setting.limits(name)
    if setting.plan.roles[name].number:
        low, high = _numbers(setting, name)
    low = max(low or 0, 0) if setting.plan.roles[name].unused else low or 0
    most = min(1 << 31, setting.ends(name)[1] + 1)
    top = min(n for n in (limit, None if high is None else high + 1, most) if n is not None)
    top = ANY if limit is None and high is None else top
    if math.prod(shape) and top <= low:
        if setting.plan.roles[name].unused and top == 0:
            return torch.full(shape, setting.plan.roles[name].unused[0], dtype=torch.int64, device=device)
        raise AxisConflict(f"{name} < {top}", f"{math.prod(shape)} indices and {top} entries to point at")
    generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
    ids = torch.randint(low, max(top, 1), shape, generator=generator, device=device)
    few = setting.structure == "few_ids" and setting.plan.roles[name].kind == "token_ids"
    if few and ids.numel():
        ids = torch.tensor(_tokens(setting.seed, low, top), device=device)[ids % _FEW]
    elif ids.numel() and _is_crowded(setting, name):
        ids.fill_(int(ids.view(-1)[0]))
    flat, away = ids.view(-1), unused.mark(setting, name, ids)
    tried = (setting.rng.randrange(len(flat)) for _ in range(_TRIES if len(flat) and not few else 0))
    used = dict.fromkeys(place for place in tried if place not in away)
    alone = len(flat) == 1 and setting.rng.randrange(2)  # a single id is no end as often as it is one
    for place, end in zip(used, () if alone else ends_of_range(setting, low, top), strict=False):
        flat[place] = end
    if not (few or away):
        _look_like_a_range(setting, flat, low, top)
    return ids


def _stated(setting: Setting, name: str) -> torch.Tensor | None:
    """Return the few numbers that constraints allow, as of a table of signs, where they are all that is allowed."""
    found = [setting.size(tree) for tree in setting.contract.reading.facts.choices.get(name, ())]
    least, most = setting.ends(name)
    return None if not found or any(n is None or not least <= n <= most for n in found) else torch.tensor(found)


def _is_crowded(setting: Setting, name: str) -> bool:
    role = setting.plan.roles[name]
    return role.kind == "index" and not role.number and way_of(setting.seed, f"crowd {name}", _CROWDED) == 0


def _numbers(setting: Setting, name: str) -> tuple[int, int]:
    """Return the range of numbers that are no ids: small ones, those of either sign, or all that 32 bits have."""
    least, most = setting.ends(name)
    first, last = setting.rng.choice(((0, ANY - 1), (-ANY, ANY - 1), (-(1 << 31), (1 << 31) - 1)))
    return max(first, least), min(last, most)


def _look_like_a_range(setting: Setting, flat: torch.Tensor, low: int, top: int) -> None:
    """Now and then have the first and the last id be those of a range that they do not make, often one from `low`."""
    if not _RANGE <= len(flat) <= top - low or setting.rng.randrange(_ALIKE):
        return
    flat[0] = low + setting.rng.choice((0, setting.rng.randint(0, top - low - len(flat))))
    flat[-1] = flat[0] + len(flat) - 1


def _tokens(seed: int, low: int, top: int) -> list[int]:
    """Return the few tokens from `low` to below `top` that occur: mostly the first or the last is one of them."""
    rng = Random(f"{seed}/tokens")  # noqa: S311 - not for secrets
    tokens = [rng.randrange(low, top) for _ in range(_FEW)]
    return [rng.choice((low, top - 1, tokens[0])), *tokens[1:]]


def ends_of_range(setting: Setting, low: int, top: int) -> tuple[int, ...]:
    """Return which of the first and the last valid id have to occur: in one draw both, in another only one."""
    return setting.rng.choice(((low, top - 1), (top - 1, low), (low,), (top - 1,)))
