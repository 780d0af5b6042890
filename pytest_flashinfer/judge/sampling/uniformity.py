"""Are numbers independent and uniform on [0, 1)? Tests whose chances hold for few numbers as for many."""

from __future__ import annotations

import math

import torch

_BINS = 16
_EXPECTED = 10  # numbers that a bin expects, by how many bins there are: for more the chi-square tail holds later
_LEAST = 1e-6  # numbers below count as this one: no single one condemns
_TESTS = 4
_DEEPEST = 10  # halvings of what is counted at either end: of less than a thousandth, rounding may have its part
_ENOUGH = 4.0  # numbers expected in a part: fewer could not be too few


def chance(numbers: list[float]) -> float:
    """Return how probable uniform numbers are that are as uneven as these, by the test that says least.

    Chi-square over bins, where there are numbers enough; the mean, whose tail is no heavier than the normal one; the
    product, by which a few that are far too small are told; and how many are near either end, for what is cut off there
    is lost in a bin. Each has a fourth of the chance of a false alarm.
    """
    if not numbers:
        return 1.0
    x, total = torch.tensor(numbers, dtype=torch.float64), len(numbers)
    score = (float(x.mean()) - 0.5) * math.sqrt(12 * total)
    found = [math.erfc(abs(score) / math.sqrt(2)), upper_tail(-2 * float(x.clamp_min(_LEAST).log().sum()), 2 * total)]
    bins = min(_BINS, math.isqrt(total // _EXPECTED))
    if bins > 1:
        counts = (x * bins).long().clamp_max(bins - 1).bincount(minlength=bins)
        expected = total / bins
        found.append(upper_tail(float(((counts - expected) ** 2).sum()) / expected, bins - 1))
    found.append(_ends(x))
    return min(1.0, _TESTS * min(found))


def _ends(x: torch.Tensor) -> float:
    """Return how probable as many or as few numbers are within a fourth, an eighth and so on of either end."""
    parts = 2.0 ** -torch.arange(2.0, 1.0 + _DEEPEST, dtype=x.dtype)
    parts = parts[parts * len(x) >= _ENOUGH]
    ordered = x.sort().values
    seen = [torch.searchsorted(ordered, parts), len(x) - torch.searchsorted(ordered, 1.0 - parts)]
    return either_way(torch.cat(seen).double(), torch.cat([parts, parts]) * len(x))


class EventCounts:
    """How often events were seen in draws, and how often chance has them."""

    def __init__(self, levels: int) -> None:
        """Count `levels` kinds of events."""
        self.seen = torch.zeros(levels, dtype=torch.float64)
        self.expected = torch.zeros(levels, dtype=torch.float64)

    def note(self, seen: torch.Tensor, expected: torch.Tensor) -> None:
        """Add counts of events [levels], on any device."""
        both = torch.stack([seen.double(), expected.double()]).cpu()
        self.seen += both[0]
        self.expected += both[1]

    def chance(self) -> float:
        """Return how probable as many events are, or as few."""
        return either_way(self.seen, self.expected)


def either_way(seen: torch.Tensor, expected: torch.Tensor) -> float:
    """Return how probable counts are that are as far off, by the one that says least, too few as well as too many.

    They are sums of independent events, of which Poisson's distribution has tails that are heavier. It says nothing of
    counts of which little is expected. That they are found in the same draws makes them no more probable.
    """
    seen, expected = seen[expected >= _ENOUGH], expected[expected >= _ENOUGH]
    few, many = torch.special.gammaincc(seen + 1, expected), torch.special.gammainc(seen, expected)
    return min(1.0, 2 * len(seen) * float(torch.minimum(few, many).min())) if len(seen) else 1.0


def upper_tail(statistic: float, freedom: int) -> float:
    """Return the probability that a chi-square variable of `freedom` degrees exceeds `statistic`."""
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(statistic / 2, dtype=torch.float64)))
