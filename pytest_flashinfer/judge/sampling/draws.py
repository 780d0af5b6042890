"""Draws from many distributions, turned into numbers that are independent and uniform where a sampler is honest."""

from __future__ import annotations

import math

import torch

from pytest_flashinfer.judge.sampling.dependence import alike, crowded, points
from pytest_flashinfer.judge.sampling.leading import Leading
from pytest_flashinfer.judge.sampling.rarity import Rarity
from pytest_flashinfer.judge.sampling.repeats import Past
from pytest_flashinfer.judge.sampling.uniformity import chance

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
RARE = "do not follow the reference's distribution in its tail: the least likely ids are too few or too many"
LED = "do not follow the reference's distribution in rows that one id leads by far: the others are too few or too many"
TOGETHER = {
    alike: "depend on each other: where in its distribution a row is drawn follows from another row, or a call before",
    crowded: "depend on each other: those of the rows of a call are spread too evenly, or lie too close together",
}
_ORDERS = ("likelihood", "id")  # in which samplers invert a distribution: numbers that they share show there
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

    Numbers that follow from others farther off, or that lie too evenly in a call, are looked for in the first two
    orders, see `dependence`. A tail that is cut off is in `Rarity`, and rows that one id leads by far are in `Leading`.

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
        self._rows: dict[str, list[float]] = {name: [] for name in _ORDERS}  # NaN where a row says nothing
        self._sizes: list[int] = []  # numbers of rows, one for each call
        self._rarity, self._leading = Rarity(), Leading()
        self._due = _FIRST

    @property
    def total(self) -> int:
        """The number of draws that say something."""
        return len(self.series["likelihood"])

    def add(
        self, samples: torch.Tensor, probabilities: torch.Tensor, support: torch.Tensor | None = None, times: int = 1
    ) -> None:
        """Add ids of one call, `times` of them from each row of probabilities [rows, n]; ids must be in the `support`.

        Where that [rows, n] holds ids which the reference itself gives no mass, others of equal mass are at its edge:
        which of them are in is a matter of rounding. Rows in which those have much of the mass are left out.
        """
        many = _PART.get(probabilities.device.type, 1)
        ids = samples.reshape(-1, 1).long()
        self._sizes.append(len(ids))
        rows = torch.arange(len(ids), device=probabilities.device) // times
        for start in range(0, len(ids), many):
            part = slice(start, start + many)
            own = part if times == 1 else rows[part]
            self._add(ids[part], probabilities[own], None if support is None else support[own])

    def _add(self, ids: torch.Tensor, mass: torch.Tensor, support: torch.Tensor | None) -> None:
        own = mass.gather(1, ids)
        telling = own[:, 0] < 1.0  # what is certain says nothing
        beyond = None if support is None else support.sum(dim=1) - mass.count_nonzero(dim=1)
        if beyond is not None:
            telling &= ~_on_edge(mass, beyond)
        places = telling.tolist()
        if not any(places):
            for name in _ORDERS:
                self._note(name, [], places)
            return
        if not all(places):
            ids, mass, own = ids[telling], mass[telling], own[telling]
            beyond = None if beyond is None else beyond[telling]
        part = torch.rand(own.shape, generator=self.generator, dtype=torch.float64).to(mass.device)
        numbers = {"likelihood": _sum(mass * (mass > own)) + part * _sum(mass * (mass == own))}
        for name, order in self._fixed(mass).items():
            numbers[name] = _sum(mass * (order < order[ids])) + part * own
        for name, found in numbers.items():
            # An id at the edge that has no mass is as good as another one: what it says is left to chance.
            self._note(name, torch.where(own > 0, found, part)[:, 0].tolist(), places)
        clear = slice(None) if beyond is None else beyond == 0  # of the others it is not known which ids are the tail
        self._rarity.add(ids[clear], mass[clear])
        self._leading.add(ids[clear], mass[clear])
        past = self._pasts.setdefault(mass.shape[1], Past(mass.shape[1], self.generator))
        self.series["past"] += map(_clamped, past.add(ids[:, 0].tolist(), mass, part[:, 0].tolist()))

    def _note(self, name: str, numbers: list[float], places: list[bool]) -> None:
        """Add numbers to a series, and their differences to its own; `places` says which rows have one."""
        told, rows = iter(map(_clamped, numbers)), self._rows.get(name)
        if rows is None:
            self.series[name] += told
            return
        for here in places:
            number = next(told) if here else math.nan
            if here:
                self.series[name].append(number)
                self._set_against(name, number, rows)
            rows.append(number)

    def _set_against(self, name: str, number: float, rows: list[float]) -> None:
        """Add how far a number is from those of the rows before."""
        for lag in _LAGS:
            if lag <= len(rows) and not math.isnan(rows[-lag]):
                apart = abs(number - rows[-lag])
                self.series[f"{name}, {lag} before"].append(2 * min(apart, 1 - apart))

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
        has half of the chance of a false alarm, the rare ids a fourth, and all others share the rest.
        """
        if self.total < self._due:
            return None
        self._due = math.ceil(_MORE * self.total)
        found = [(chance(self.series[name]), fault) for name, fault in SERIES.items() if name != "likelihood"]
        for rows in map(points, self._rows.values()):
            found += [(test(rows, self._sizes), fault) for test, fault in TOGETHER.items()]
        found.append((self._leading.chance(), LED))
        shared = [(4 * len(found) * each, fault) for each, fault in found]
        first = (2 * chance(self.series["likelihood"]), SERIES["likelihood"])
        least, worst = min(first, (4 * self._rarity.chance(), RARE), *shared)
        return min(1.0, least), worst


def _on_edge(mass: torch.Tensor, beyond: torch.Tensor) -> torch.Tensor:
    """Say of each row whether ids `beyond` those with mass in its support, and so others like them, may have much."""
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
