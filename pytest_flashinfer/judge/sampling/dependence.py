"""Do uniform numbers depend on each other? As points on a circle, independent ones add up to a random walk.

A number x is the point exp(2 pi i x). Of two points the quotient stays near one place where numbers are apart by much
the same each time, the product where one is about the other's complement (1 - x, as antithetic samplers have it).
Pairs at one distance close no ring, so the quotients of independent points are independent and uniform too, however
many of the pairs share a number: their sum is a walk of as many steps of length one, in the plane. The chance that it
ends further than r from where it began is at most exp(-r * r / steps), for its steps are bounded: that holds for few
steps as for many. The walks of all distances are found at once by Fourier transforms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.judge.sampling.uniformity import upper_tail

if TYPE_CHECKING:
    from collections.abc import Iterable

_CALLS = 3  # back to which a call is compared with those before of as many rows
_TONES = 6  # powers of points whose sums are looked at, for how evenly they lie
_ROWS = 4  # for each power: fewer points than twice the powers could make all their sums small together
_LEAST = 8  # rows of a call: sums of fewer points are small too often


def points(rows: list[float]) -> torch.Tensor:
    """Return the points of numbers, one of each row; zero, which adds nothing to a sum, for NaN: a row without one."""
    numbers = torch.tensor(rows, dtype=torch.float64)
    return torch.polar((~numbers.isnan()).double(), 2 * math.pi * numbers.nan_to_num_(nan=0.0))


def alike(series: torch.Tensor, sizes: list[int]) -> float:
    """Return how probable walks as long as the longest are, of points whose rows are in calls of these `sizes`.

    All distances are looked at in one series of all rows. There a pattern of each call drowns where calls differ in
    size: calls of one size are compared with the three before as well, and the halves of a call with one another, also
    with the rows of one of both in reverse.
    """
    found = [_along(series)]
    for calls in _of_one_size(series, sizes):
        half = (calls.shape[1] + 1) // 2
        found += _between(calls[:, half:], calls[:, :half], [0])
        found += _between(calls, calls, range(1, min(_CALLS + 1, len(calls))))
    scores = torch.cat(found)
    return min(1.0, len(scores) * math.exp(-float(scores.max()))) if len(scores) else 1.0


def crowded(series: torch.Tensor, sizes: list[int]) -> float:
    """Return how probable it is that the points of each call lie as evenly as these, or as much in one place.

    The squared sum of n independent points, over n, is an exponential variable, and so are those of their powers, as
    good as independent. All are too small together where the rows of a call share the circle out among themselves, each
    its own stretch (stratified or systematic sampling): chi-square over all draws can be inconspicuous then. The
    first one is too large where rows of a call have a number in common, whichever these are. Of that one alone the
    upper tail is no heavier than that of an exponential variable.
    """
    small, large, powers, number = 0.0, 0.0, 0, 0
    for calls in _of_one_size(series, sizes):
        count = (calls != 0).sum(dim=1)
        power = torch.ones_like(calls)
        for step in range(_ROWS, _TONES * _ROWS + 1, _ROWS):
            power *= calls
            enough = count >= max(_LEAST, step)
            found = float((power.sum(dim=1).abs().square() / count)[enough].sum())
            small, powers = small + found, powers + int(enough.sum())
            large, number = (large + found, number + int(enough.sum())) if step == _ROWS else (large, number)
    if not number:
        return 1.0
    return min(1.0, 2 * min(1.0 - upper_tail(2 * small, 2 * powers), upper_tail(2 * large, 2 * number)))


def _of_one_size(series: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """Return the points of calls as [calls, rows], a tensor for each size of more than one row."""
    lengths = torch.tensor(sizes, dtype=torch.int64)
    starts = lengths.cumsum(0) - lengths
    return [series[starts[lengths == size][:, None] + torch.arange(size)] for size in sorted(set(sizes)) if size > 1]


def _along(series: torch.Tensor) -> torch.Tensor:
    """Return the scores of quotients and products at all distances in one series."""
    total = len(series)
    size = 1 << (2 * total).bit_length()
    ahead, there = _spectrum(series, size), _spectrum(series != 0, size)
    turned = ahead.roll(-1).flip(0)  # the spectrum of the conjugates, conjugated
    return _scores([ahead * ahead.conj(), ahead * turned], there * there.conj())[:, 1:total].reshape(-1)


def _between(ahead: torch.Tensor, behind: torch.Tensor, apart: Iterable[int]) -> list[torch.Tensor]:
    """Return the scores of quotients and products of rows of calls with rows of calls so many before them.

    Both are [calls, rows]. A walk goes on over all calls; there is one for each distance and, where the rows of one of
    both are in reverse, for each middle.
    """
    size = ahead.shape[1] + behind.shape[1]
    forward, there = _spectrum(ahead, size), _spectrum(ahead != 0, size)
    found = []
    for other in (behind, behind.flip(1)):
        spectra = [_spectrum(each, size).conj() for each in (other, other.conj(), other != 0)]
        for back in apart:
            same, mirrored, pairs = (
                (one[back:] * each[: len(each) - back]).sum(dim=0)
                for one, each in zip((forward, forward, there), spectra, strict=True)
            )
            found.append(_scores([same, mirrored], pairs).reshape(-1))
    return found


def _spectrum(values: torch.Tensor, size: int) -> torch.Tensor:
    found: torch.Tensor = torch.fft.fft(values, size)
    return found


def _scores(spectra: list[torch.Tensor], pairs: torch.Tensor) -> torch.Tensor:
    """Return the squared length of each walk over its number of steps; none where there are no pairs."""
    steps = torch.fft.ifft(pairs).real.round().clamp_min(1.0)
    scores: torch.Tensor = torch.fft.ifft(torch.stack(spectra)).abs().square() / steps
    return scores
