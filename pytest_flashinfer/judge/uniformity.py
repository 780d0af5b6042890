"""Are numbers independent and uniform on [0, 1)? Tests whose chances hold for few numbers as for many."""

from __future__ import annotations

import math

import torch

_BINS = 16
_EXPECTED = 10  # numbers that a bin expects, by how many bins there are: for more the chi-square tail holds later
_LEAST = 1e-6  # numbers below count as this one: no single one condemns
_TESTS = 3


def chance(numbers: list[float]) -> float:
    """Return how probable uniform numbers are that are as uneven as these, by the test that says least.

    Chi-square over bins, where there are numbers enough; the mean, whose tail is no heavier than the normal one; and
    the product, by which a few that are far too small are told.
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
    return min(1.0, _TESTS * min(found))


def upper_tail(statistic: float, freedom: int) -> float:
    """Return the probability that a chi-square variable of `freedom` degrees exceeds `statistic`."""
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(statistic / 2, dtype=torch.float64)))
