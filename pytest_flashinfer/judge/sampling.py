"""The judge of sampled ids: their support, and whether they are drawn from the reference's distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from .comparison import Comparison

if TYPE_CHECKING:
    from .truth import OutputTruth

FALSE_ALARM = 1e-6  # how often an honest sampler is accused by the test of the distribution
_BINS = 16
_EXPECTED = 20.0  # draws a bin must expect for the chi-square tail to hold
_EDGE = 0.01  # of a row's mass that may come or go with a rounding: of more, chance says nothing


class Draws:
    """Sampled ids with the distributions they should come from, over one or many calls.

    Each draw is turned into a number that is uniform on [0, 1) where the draw follows its distribution: the mass of all
    likelier ids, plus a random part of its own mass. So draws from different distributions can be tested together.
    """

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.numbers: list[float] = []
        self._next = 0  # draws at which they are tested again

    def add(self, samples: torch.Tensor, probabilities: torch.Tensor, support: torch.Tensor | None = None) -> None:
        """Add ids [rows] drawn from probabilities [rows, n]; ids must be in the `support` [rows, n].

        Where that holds ids which the reference itself gives no mass, others of equal mass are at its edge: which of
        them are in is a matter of rounding. Rows in which those have much of the mass are left out.
        """
        mass = probabilities.to(torch.float64)
        own = mass.gather(1, samples.reshape(-1, 1).long())
        place = torch.arange(mass.shape[1], device=mass.device)
        before = (mass > own) | ((mass == own) & (place < samples.reshape(-1, 1)))
        above = torch.where(before, mass, 0.0).sum(dim=1)
        part = torch.rand(own.shape[0], generator=self.generator, dtype=torch.float64).to(mass.device)
        telling = own[:, 0] < 1.0  # what is certain says nothing
        if support is not None:
            least = mass.masked_fill(mass == 0, 1.0).amin(dim=1)
            telling &= (support & (mass == 0)).sum(dim=1) * least <= _EDGE
        self.numbers += (above + part * own[:, 0])[telling].clamp(0.0, 1.0 - 1e-12).tolist()

    def chance(self) -> float | None:
        """Return how probable numbers as uneven as these are, `None` for too few draws, or few more than last time.

        The smaller of two tests, doubled: chi-square over bins, and the mean, which a wrong temperature moves. Asked
        after each of many calls it looks whenever there are twice as many draws, some ten times in all.
        """
        total = len(self.numbers)
        bins = min(_BINS, int(total / _EXPECTED))
        if bins < 2 or total < self._next:  # noqa: PLR2004 - nothing to compare
            return None
        self._next = 2 * total
        counts = [0] * bins
        for number in self.numbers:
            counts[int(number * bins)] += 1
        expected = total / bins
        statistic = sum((count - expected) ** 2 for count in counts) / expected
        score = (sum(self.numbers) / total - 0.5) * math.sqrt(12 * total)
        return min(1.0, 2 * min(upper_tail(statistic, bins - 1), math.erfc(abs(score) / math.sqrt(2))))


def upper_tail(statistic: float, freedom: int) -> float:
    """Return the probability that a chi-square variable of `freedom` degrees exceeds `statistic`."""
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(statistic / 2, dtype=torch.float64)))


def compare_samples(actual: torch.Tensor, truth: OutputTruth, draws: Draws | None = None) -> Comparison:
    """Judge sampled ids [rows]: each in the support of its row; together, as drawn from the rows' distributions.

    `draws` carries the test over several calls; without it this call alone is tested. Where the reference does not say
    what it draws from (no `torch.multinomial`), the ids must be no larger than the reference's own range allows:
    non-negative.
    """
    flat = actual.reshape(-1)
    mass, support = truth.probabilities, truth.support
    if mass is None or support is None:
        bad = (flat < 0) & (True if truth.native is None else ~torch.isin(flat, truth.native))  # -1 may pad
        note = "the reference's distribution is not known: only the range is checked"
        return _support(truth, flat, bad, note) if bool(bad.any()) else _fine(truth, flat, note)
    outside = (flat < 0) | (flat >= mass.shape[1])
    inside = flat.long().clamp(0, mass.shape[1] - 1)
    bad = outside | ~support.gather(1, inside[:, None])[:, 0]
    if bool(bad.any()):
        return _support(truth, flat, bad, "not in the support of the reference's distribution")
    draws = Draws() if draws is None else draws
    draws.add(flat, mass, support)
    chance = draws.chance()
    if chance is not None and chance < FALSE_ALARM:
        line = f"{truth.name}: {len(draws.numbers)} draws do not follow the reference's distribution"
        line += ", those of all calls so far: one case by itself may well pass"
        detail = f"chance {chance:.2g} for an honest sampler, {FALSE_ALARM:g} is refused"
        return Comparison(
            truth.name, ok=False, problem="values", n_total=flat.numel(), how="sampling", lines=(line, detail)
        )
    tested = "" if chance is None else f", distribution ok (chance {chance:.2g} over {len(draws.numbers)} draws)"
    return _fine(truth, flat, "in the support" + tested)


def _fine(truth: OutputTruth, flat: torch.Tensor, note: str) -> Comparison:
    return Comparison(truth.name, ok=True, n_total=flat.numel(), how="sampling", lines=(f"{truth.name}: ok, {note}",))


def _support(truth: OutputTruth, flat: torch.Tensor, bad: torch.Tensor, reason: str) -> Comparison:
    row = int(bad.to(torch.uint8).argmax())
    value = int(flat[row])
    likelihood = math.nan
    if truth.probabilities is not None and 0 <= value < truth.probabilities.shape[1]:
        likelihood = float(truth.probabilities[row, value])
    lines = (
        f"{truth.name}[{row}]: id {value} is {reason} (probability {likelihood:g})",
        f"{int(bad.sum())} of {flat.numel()} draws",
    )
    return Comparison(
        truth.name,
        ok=False,
        problem="values",
        n_bad=int(bad.sum()),
        n_total=flat.numel(),
        worst=(row,),
        actual=value,
        how="sampling",
        lines=lines,
    )
