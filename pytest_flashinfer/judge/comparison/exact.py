"""Counting the misses of one output that is no float: equal or not, or within limits that were stated for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison.measure import ErrorTally, flat, spans
from pytest_flashinfer.judge.oracle.integers import beyond

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.truth import OutputTruth
    from pytest_flashinfer.judge.tolerance import Tolerance

_LONG = torch.iinfo(torch.int64)
_BEYOND = 2.0**63  # what no int64 holds


class Exact:
    """Integers, bools, packed codes, and floats of which the bits count; differences are found without any rounding.

    `own` holds the settings that count here, see `holding`; `strict`: limits are stated for all outputs.
    """

    def __init__(self, actual: torch.Tensor, truth: OutputTruth, own: Tolerance, *, strict: bool = False) -> None:
        self.truth, self.own, self.strict = truth, own, strict
        self.ratio = own.required_matched_ratio
        packed = floats.is_packed(truth.dtype)
        assert truth.native is not None
        both = [floats.unpack(x, truth.dtype) if packed else x for x in (actual, truth.native)]
        self.shape = tuple(both[0].shape)
        self.bits = 8 * both[0].element_size() if floats.name_of(both[0].dtype).startswith("uint") else 0
        self.actual, self.expected = (_plain_bits(flat(x)) for x in both)
        self.undecided = None if truth.undecided is None else flat(truth.undecided)
        if packed and self.undecided is not None:
            self.undecided = self.undecided.repeat_interleave(2)
        self.reach = None if truth.reach is None or packed else flat(truth.reach)

    def bad(self, part: slice) -> torch.Tensor:
        """Return where the chunk misses."""
        a, e = self.actual[part], self.expected[part]
        wrong = (a != e) & ~(a.isnan() & e.isnan()) if a.is_floating_point() else a != e
        if self.undecided is not None:
            free = self.undecided[part]
            if self.reach is not None:
                free = free & ~beyond(self._distance(part), self.reach[part])
            wrong &= ~free
        if self.own.explicit or self.own.max_error_cap is not None:
            wrong &= ~self._within(part)
        return wrong

    def run(self) -> ErrorTally:
        """Count misses; find the largest difference, the first of equals, and how much of the limits it spends."""
        tally, most = ErrorTally(), _LONG.min
        for part in spans(self.actual):
            wrong = self.bad(part)
            count = int(wrong.sum())
            if self.own.explicit or self.own.max_error_cap is not None:
                self._spend(tally, part)
            if count and not tally.bad:
                tally.at = part.start + int(wrong.to(torch.uint8).argmax())
            tally.bad += count
            if count and self.actual.dtype is not torch.bool:
                ranks = self._ranks(part).masked_fill(~wrong, _LONG.min)
                top = int(ranks.argmax())
                if int(ranks[top]) > most:
                    most, tally.at = int(ranks[top]), part.start + top
        if tally.bad and not self.own.explicit:
            tally.share = float("inf")
        if tally.bad:
            a, e = self.values(tally.at)
            tally.max_abs = max(tally.max_abs, abs(float(a - e)))
            tally.max_rel = max(tally.max_rel, abs(float(a - e)) / abs(e) if e else 0.0)
        return tally

    def limit(self, index: int) -> float:
        """Return the bound at an element."""
        return float(self._tolerated(slice(index, index + 1)))

    def values(self, index: int) -> tuple[Any, Any]:
        """Return what an element is and what it should be, as Python numbers."""
        both = self.actual[index].item(), self.expected[index].item()
        actual, expected = (x + (1 << self.bits) if self.bits and x < 0 else x for x in both)
        return actual, expected

    def _spend(self, tally: ErrorTally, part: slice) -> None:
        error, limit = _real(self._distance(part)), self._tolerated(part)
        if self.undecided is not None:
            error = error.masked_fill(self.undecided[part], 0.0)
        spent = torch.where(error > 0, error / limit, 0.0)
        relative = torch.nan_to_num(torch.where(error > 0, error / self._size(part), 0.0), posinf=0.0)
        found = torch.stack([error.max(), relative.max(), spent.max()]).tolist()
        tally.max_abs, tally.max_rel = max(tally.max_abs, found[0]), max(tally.max_rel, found[1])
        if self.own.explicit:
            tally.share = max(tally.share, found[2])

    def _tolerated(self, part: slice) -> torch.Tensor:
        return (self.own.atol or 0.0) + (self.own.rtol or 0.0) * self._size(part)

    def _within(self, part: slice) -> torch.Tensor:
        """Return where differences are within the limits; they are compared as the integers they are."""
        within = _at_most(self._distance(part), self._tolerated(part))
        if self.own.max_error_cap is not None:
            cap = torch.full_like(within, self.own.max_error_cap, dtype=torch.float64)
            within &= _at_most(self._distance(part), cap)
        return within

    def _distance(self, part: slice) -> torch.Tensor:
        """Return the absolute differences of integers as words of 64 bits, in which those from 2**63 on are negative.

        Of any two such integers the larger less the smaller is less than 2**64: subtraction wraps around to its bits.
        """
        a, e = self._long(self.actual[part]), self._long(self.expected[part])
        return torch.maximum(a, e) - torch.minimum(a, e)

    def _ranks(self, part: slice) -> torch.Tensor:
        """Return numbers that are in the order of the absolute differences; one that is NaN counts as the largest."""
        if self.actual.is_floating_point():
            apart = self.actual[part].to(torch.float64) - self.expected[part].to(torch.float64)
            return torch.nan_to_num(apart.abs(), nan=torch.inf, posinf=torch.inf).view(torch.int64)
        return self._distance(part) ^ _LONG.min

    def _long(self, words: torch.Tensor) -> torch.Tensor:
        """Widen to int64 in the same order: 64-bit words without a sign by turning the first bit over."""
        wide = words.to(torch.int64)
        if self.bits == 64:  # noqa: PLR2004 - a word
            return wide ^ _LONG.min
        return wide & ((1 << self.bits) - 1) if self.bits else wide

    def _size(self, part: slice) -> torch.Tensor:
        """Return the absolute expected values in float64, in which the smallest int64 has one."""
        expected = self.expected[part].to(torch.float64)
        return torch.where(expected < 0, expected + 2.0**self.bits, expected) if self.bits else expected.abs()


def _at_most(distance: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Compare words of 64 bits with limits, none of them rounded: those from 2**63 on by what they are beyond it."""
    whole = limit.floor()
    fits, every = whole < _BEYOND, whole >= 2 * _BEYOND
    small = whole.where(fits, 0.0).to(torch.int64)
    rest = (whole - _BEYOND).where(~fits & ~every, 0.0).to(torch.int64)
    large = every | (distance >= 0) | ((distance ^ _LONG.min) <= rest)
    return torch.where(fits, (distance >= 0) & (distance <= small), large)


def _real(distance: torch.Tensor) -> torch.Tensor:
    return distance.to(torch.float64) + torch.where(distance < 0, 2 * _BEYOND, 0.0)


def _plain_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Give unsigned dtypes with few operations a signed view (equality is that of the bits)."""
    signed = {"uint16": torch.int16, "uint32": torch.int32, "uint64": torch.int64}.get(floats.name_of(tensor.dtype))
    return tensor if signed is None else tensor.view(signed)
