"""Integers made anew as a whole, so that their sums, steps or counts are as they are asked for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_TRIES: Final = 8  # of finding one of a row that is unlike two others


def with_sums(old: torch.Tensor, totals: torch.Tensor, rng: Random, *, by_row: bool) -> Iterator[torch.Tensor]:
    """Yield parts of sums, of each row or of all elements: at random, none of them 0 where none was, or any."""
    rows = old.reshape(-1, old.shape[-1]) if by_row and old.dim() > 1 else old.reshape(1, -1)
    if rows.shape[1] and totals.numel() in {1, len(rows)} and not bool((totals < 0).any()):
        wanted = totals.to(torch.int64).flatten().expand(len(rows))
        for floor in dict.fromkeys((int(int(old.min()) > 0), 0) if old.numel() else ()):
            made = [_parts(rows.shape[1], int(total), floor, rng) for total in wanted]
            yield torch.stack(made).view(old.shape)


def _parts(count: int, total: int, floor: int, rng: Random) -> torch.Tensor:
    rest = max(0, total - floor * count)
    cuts = sorted(rng.randint(0, rest) for _ in range(count - 1))
    return torch.tensor([b - a + floor for a, b in pairwise([0, *cuts, rest])], dtype=torch.int64)


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


def with_counts(old: torch.Tensor, counts: torch.Tensor, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield ids of which there are as many of each as counts say, in any order and in their own."""
    if counts.dim() == 0 and int(counts) > 0:
        counts = counts.expand(old.numel() // int(counts))
    if counts.dim() and int(counts.clamp(min=0).sum()) == old.numel():
        ids = torch.arange(counts.numel()).repeat_interleave(counts.flatten().clamp(min=0))
        yield ids[torch.randperm(ids.numel(), generator=generator)].view(old.shape)
        yield ids.view(old.shape)


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
