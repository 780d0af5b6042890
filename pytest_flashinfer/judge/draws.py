"""Draws from many distributions, turned into numbers that are independent and uniform where a sampler is honest."""

from __future__ import annotations

import math

import torch

from .past import Past
from .uniformity import chance

FALSE_ALARM = 5e-7  # how often a look at the draws accuses an honest sampler, by all tests together
_BEFORE = "depend on each other: where in its distribution a row is drawn follows from {}"
_LAGS = {1: "the row before", 2: "the row two before", 3: "the row three before"}
SERIES = {
    "likelihood": "do not follow the reference's distribution",
    "id": "do not follow the reference's distribution in the order of ids",
    "twos": "do not follow the reference's distribution in the low bits of ids",
    "residue": "do not follow the reference's distribution in the remainders of ids",
    "past": "do not follow the reference's distribution in a row drawn from again: ids return too often or too rarely",
    **{f"{name}, {lag} before": _BEFORE.format(row) for name in ("likelihood", "id") for lag, row in _LAGS.items()},
}
_BASES = (3, 5, 7, 11, 13)  # of remainders, beside two
_EDGE = 0.01  # of a row's mass that may come or go with a rounding: of more, chance says nothing
_FIRST = 4  # draws at which they are tested first
_MORE = 1.5  # times as many: when they are tested next
_PART = {"cpu": 4, "cuda": 256}  # rows at once: those that a processor's cache holds, or that keep a card busy


class Draws:
    """Sampled ids with the distributions they should come from, over one or many calls.

    The ids of a row are put in an order which the draw itself has no part in, and the draw becomes a number: the mass
    of all ids before, plus a random part of its own mass and that of its equals. That is uniform on [0, 1), whatever
    the distribution and the order are, and independent of all numbers before. So draws from different distributions can
    be tested together, and the order may follow from what was drawn before. Each order has a series of numbers, and
    shows other faults:

    likelihood, id: too many of the likely, unlikely, low or high ones.
    twos, residue: by the last digit first, in base two and in one that the judge draws: some remainders only.
    past: the same draw in each call, draws from few ids, or none of them twice; see `Past`.
    1 before, and so on: how far a number is from an earlier one of its series, on a circle: one random number for many
    draws, or several that take turns.

    `seed` is by default one that nobody can know.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)
        self.base = _BASES[int(torch.randint(len(_BASES), (), generator=self.generator))]
        self.series: dict[str, list[float]] = {name: [] for name in SERIES}
        self._orders: dict[int, dict[str, torch.Tensor]] = {}
        self._pasts: dict[int, Past] = {}
        self._before: dict[str, list[float | None]] = {}  # the last numbers of each order, where rows have one
        self._due = _FIRST

    @property
    def total(self) -> int:
        """The number of draws that say something."""
        return len(self.series["likelihood"])

    def add(self, samples: torch.Tensor, probabilities: torch.Tensor, support: torch.Tensor | None = None) -> None:
        """Add ids [rows] of one call, drawn from probabilities [rows, n]; ids must be in the `support` [rows, n].

        Where that holds ids which the reference itself gives no mass, others of equal mass are at its edge: which of
        them are in is a matter of rounding. Rows in which those have much of the mass are left out.
        """
        many = _PART.get(probabilities.device.type, 1)
        ids = samples.reshape(-1, 1).long()
        for start in range(0, len(ids), many):
            part = slice(start, start + many)
            self._add(ids[part], probabilities[part], None if support is None else support[part])

    def _add(self, ids: torch.Tensor, mass: torch.Tensor, support: torch.Tensor | None) -> None:
        own = mass.gather(1, ids)
        telling = own[:, 0] < 1.0  # what is certain says nothing
        if support is not None:
            telling &= ~_on_edge(mass, support)
        places = telling.tolist()
        if not all(places):
            ids, mass, own = ids[telling], mass[telling], own[telling]
        if not len(ids):
            return
        part = torch.rand(own.shape, generator=self.generator, dtype=torch.float64).to(mass.device)
        numbers = {"likelihood": _sum(mass * (mass > own)) + part * _sum(mass * (mass == own))}
        for name, order in self._fixed(mass).items():
            numbers[name] = _sum(mass * (order < order[ids])) + part * own
        for name, found in numbers.items():
            # An id at the edge that has no mass is as good as another one: what it says is left to chance.
            self._note(name, torch.where(own > 0, found, part)[:, 0].tolist(), places)
        past = self._pasts.setdefault(mass.shape[1], Past(mass.shape[1], self.generator))
        self.series["past"] += map(_clamped, past.add(ids[:, 0].tolist(), mass, part[:, 0].tolist()))

    def _note(self, name: str, numbers: list[float], places: list[bool]) -> None:
        """Add numbers to a series, and their differences to its own; `places` says which rows have one."""
        told, before = iter(map(_clamped, numbers)), self._before.setdefault(name, [])
        for here in places:
            number = next(told) if here else None
            if number is not None:
                self.series[name].append(number)
                self._set_against(name, number, before)
            before.append(number)
        del before[: -max(_LAGS)]

    def _set_against(self, name: str, number: float, before: list[float | None]) -> None:
        """Add how far a number is from those of the rows before, in the orders that this is looked at in."""
        for lag, earlier in zip(_LAGS, reversed(before), strict=False):
            differences = self.series.get(f"{name}, {lag} before")
            if differences is not None and earlier is not None:
                apart = abs(number - earlier)
                differences.append(2 * min(apart, 1 - apart))

    def _fixed(self, mass: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the place of each id in the orders that are one for all rows as long as these."""
        size = mass.shape[1]
        if size not in self._orders:
            ids = torch.arange(size)
            orders = {"id": ids, "twos": _reversed(ids, 2), "residue": _reversed(ids, self.base)}
            self._orders[size] = {name: order.int().to(mass.device) for name, order in orders.items()}
        return self._orders[size]

    def look(self) -> tuple[float, str] | None:
        """Return how probable draws as uneven as these are, and what is wrong if they are not chance.

        `None` for too few draws, or few more than last time: asked after each of many calls it looks whenever there are
        half as many draws again, some twenty times in all. The order of likelihood, which shows the most usual faults,
        has half of the chance of a false alarm, the others share the rest.
        """
        if self.total < self._due:
            return None
        self._due = math.ceil(_MORE * self.total)
        shares = dict.fromkeys(SERIES, 2 * (len(SERIES) - 1)) | {"likelihood": 2}
        least, worst = min((chance(self.series[name]) * share, name) for name, share in shares.items())
        return min(1.0, least), SERIES[worst]


def _on_edge(mass: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """Say of each row whether ids in its support that have no mass, and so others like them, may have much of it."""
    beyond = support.sum(dim=1) - mass.count_nonzero(dim=1)
    if not bool(beyond.any()):
        return beyond > 0
    least = mass.masked_fill(mass == 0, 1.0).amin(dim=1)
    return beyond * least > _EDGE


def _clamped(number: float) -> float:
    return min(max(number, 0.0), 1.0 - 1e-12)


def _sum(masses: torch.Tensor) -> torch.Tensor:
    return masses.sum(dim=1, keepdim=True, dtype=torch.float64)


def _reversed(ids: torch.Tensor, base: int) -> torch.Tensor:
    """Return ids with their digits in reverse: multiples of the base come first, those of its square before."""
    result, left, most = torch.zeros_like(ids), ids.clone(), len(ids) - 1
    while most > 0:
        result = result * base + left % base
        left, most = left // base, most // base
    return result
