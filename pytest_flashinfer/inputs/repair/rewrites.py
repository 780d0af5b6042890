"""Integers made anew as a whole, so that their sums, steps or counts are as they are asked for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.integers.partition import capped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_TRIES: Final = 8  # of finding one of a row that is unlike two others


def with_sums(
    old: torch.Tensor, totals: torch.Tensor, rng: Random, most: int | None = None, *, by_row: bool
) -> Iterator[torch.Tensor]:
    """Yield parts of sums, of each row or of all elements: at random, none of them 0 where none was, or any.

    None is above `most`, where that leaves room.
    """
    wanted = _totals(old, totals, by_row=by_row)
    for floor in dict.fromkeys((int(int(old.min()) > 0), 0) if wanted else ()):
        made = [_parts(old.numel() // len(wanted), total, floor, rng, most) for total in wanted]
        yield torch.stack(made).view(old.shape)


def with_marks(
    old: torch.Tensor, totals: torch.Tensor, rng: Random, *, by_row: bool, near: bool = False
) -> Iterator[torch.Tensor]:
    """Yield masks with so many elements set, of each row or of all: `near` to the old one, or made anew.

    Those made anew have what is set at the left of a row, at its right or anywhere.
    """
    wanted, width = _totals(old, totals, by_row=by_row), old.shape[-1]
    if not wanted or any(total > old.numel() // len(wanted) for total in wanted):
        return
    parts = old.reshape(len(wanted), -1)
    if near:
        yield torch.stack([_turned(row, total, rng) for row, total in zip(parts, wanted, strict=True)]).view(old.shape)
    counts = wanted if len(wanted) == old.numel() // width else _parts(
        old.numel() // width, wanted[0], 0, rng, width).tolist()  # fmt: skip
    yield torch.stack([_marked(width, count, rng) for count in counts]).view(old.shape)


def _totals(old: torch.Tensor, totals: torch.Tensor, *, by_row: bool) -> list[int]:
    """Return the sum of each row, or the one of all; nothing where they do not fit."""
    count = old.numel() // old.shape[-1] if by_row and old.dim() > 1 and old.shape[-1] else 1
    if not old.numel() or totals.numel() not in {1, count} or bool((totals < 0).any()):
        return []
    return [int(n) for n in totals.flatten().expand(count)]


def _turned(row: torch.Tensor, count: int, rng: Random) -> torch.Tensor:
    """Return a row of a mask in which some more or fewer are set."""
    new, more = row.clone(), count - int(row.sum())
    places = (row == (more < 0)).nonzero().flatten().tolist()
    new[rng.sample(places, abs(more))] = int(more > 0)
    return new


def _marked(width: int, count: int, rng: Random) -> torch.Tensor:
    places = rng.choice((range(count), range(width - count, width), rng.sample(range(width), count)))
    return torch.zeros(width, dtype=torch.int64).scatter_(0, torch.tensor(list(places), dtype=torch.int64), 1)


def _parts(count: int, total: int, floor: int, rng: Random, most: int | None = None) -> torch.Tensor:
    rest = max(0, total - floor * count)
    cuts = sorted(rng.randint(0, rest) for _ in range(count - 1))
    parts = [b - a + floor for a, b in pairwise([0, *cuts, rest])]
    if most is not None and max(floor, 0) * count <= total <= most * count:
        parts = capped(parts, [most] * count, rng)
    return torch.tensor(parts, dtype=torch.int64)


def with_steps(old: torch.Tensor, steps: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a row with these steps."""
    if old.dim() == 1 and len(old) > 1 and steps.numel() in {1, len(old) - 1}:
        yield torch.cat([old[:1], old[0] + steps.flatten().expand(len(old) - 1).cumsum(0)])


def rising(old: torch.Tensor, least: int, every: torch.Tensor, rng: Random) -> Iterator[torch.Tensor]:
    """Yield rows that rise by `least` or more: the old elements in order, or others in the range of `every` one."""
    if old.dim() < 1 or old.shape[-1] < 2:  # noqa: PLR2004 - there is no step
        return
    places = torch.arange(old.shape[-1]) * least
    yield (old.sort(dim=-1).values - places).cummax(dim=-1).values + places
    every_one = range(int(every.min()), int(every.max()) + 1)
    if least == 1 and len(every_one) >= old.shape[-1]:
        rows = [sorted(rng.sample(every_one, old.shape[-1])) for _ in range(old.numel() // old.shape[-1])]
        yield torch.tensor(rows, dtype=torch.int64).view(old.shape)


def with_counts(old: torch.Tensor, counts: torch.Tensor, rng: Random) -> Iterator[torch.Tensor]:
    """Yield ids of which there are as many of each as counts say: in any order and in their own, whichever first."""
    if counts.dim() == 0 and int(counts) > 0:
        counts = counts.expand(old.numel() // int(counts))
    if counts.dim() and int(counts.clamp(min=0).sum()) == old.numel():
        ids = torch.arange(counts.numel()).repeat_interleave(counts.flatten().clamp(min=0))
        order = torch.tensor(rng.sample(range(len(ids)), len(ids)), dtype=torch.int64)
        ways = [ids, ids[order]]
        rng.shuffle(ways)
        yield from (each.view(old.shape) for each in ways)


def in_any_order(old: torch.Tensor, wanted: torch.Tensor, rng: Random) -> Iterator[torch.Tensor]:
    """Yield numbers in a random order; in that of the old ones, the larger where they were."""
    if wanted.numel() == old.numel():
        numbers = wanted.flatten().to(torch.int64)
        order = torch.tensor(rng.sample(range(len(numbers)), len(numbers)), dtype=torch.int64)
        for each in (order, old.flatten().argsort().argsort()):
            yield numbers[each].view(old.shape)


def with_all_of(old: torch.Tensor, wanted: torch.Tensor, rng: Random) -> Iterator[torch.Tensor]:
    """Yield numbers of which each of some occurs, and no other."""
    if 0 < wanted.numel() <= old.numel():
        numbers = wanted.flatten().tolist()
        every = [*numbers, *rng.choices(numbers, k=old.numel() - len(numbers))]
        rng.shuffle(every)
        yield torch.tensor(every, dtype=torch.int64).view(old.shape)


def with_different(old: torch.Tensor, count: int, rng: Random) -> Iterator[torch.Tensor]:
    """Yield ids of which so many are different: what comes again gives way to ids that do not occur, or to a mark.

    Where too many are different, some become like others.
    """
    flat = old.flatten().tolist()
    first = {n: at for at, n in reversed(list(enumerate(flat)))}
    seen, again = set(first), [at for at, n in enumerate(flat) if n >= 0 and first[n] != at]
    free = [n for n in range(min(len(flat) + count, 2 * len(flat))) if n not in seen]
    rng.shuffle(free)
    for marks in (free, [-1] * len(again)):
        used = marks[: len(again)]
        new = torch.tensor(flat, dtype=torch.int64)
        new[again[: len(used)]] = torch.tensor(used, dtype=torch.int64)
        yield new.view(old.shape)
    if 0 < count < len(seen):
        few = rng.sample(sorted(seen), count)
        order = [*few, *rng.choices(few, k=len(flat) - count)]
        rng.shuffle(order)
        yield torch.tensor(order, dtype=torch.int64).view(old.shape)


def unlike_neighbours(old: torch.Tensor, rng: Random) -> Iterator[torch.Tensor]:
    """Yield a row in which hardly an element is like the one before it; those that give way are others of the row."""
    row, present = old.flatten().tolist(), sorted(set(old.flatten().tolist()))
    for at in range(1, len(row)):
        for _ in range(_TRIES if row[at] == row[at - 1] else 0):
            row[at] = rng.choice(present)
            if row[at] != row[at - 1] and row[at : at + 1] != row[at + 1 : at + 2]:
                break
    yield torch.tensor(row, dtype=torch.int64).view(old.shape)
