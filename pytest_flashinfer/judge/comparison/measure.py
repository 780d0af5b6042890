"""Counting the misses of one output of floats, in chunks, non-finite values first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge import floats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.judge.oracle.truth import OutputTruth
    from pytest_flashinfer.judge.tolerance import Tolerance

CHUNK = 1 << 22  # elements: some eight float64 temporaries of a chunk stay at 256 MiB
CACHED = 1 << 16  # elements on the CPU, whose caches hold as many


@dataclass(slots=True)
class ErrorTally:
    """Running totals over chunks."""

    bad: int = 0
    special: int = 0
    blamed: int = 0  # of the special ones, those where the reference itself is not finite and the output agrees
    max_abs: float = 0.0
    max_rel: float = 0.0
    share: float = 0.0
    at: int = 0
    rank: float = field(default=0.0, compare=False)  # of the element there: its share, those that miss before others
    special_at: int = -1
    dot: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor of any shape as one row [n]."""
    return tensor.detach().as_subclass(torch.Tensor).reshape(-1)


def spans(row: torch.Tensor) -> Iterator[slice]:
    """Yield the slices of a flat tensor [n] that are looked at together."""
    step = CHUNK if row.is_cuda else CACHED
    for start in range(0, row.numel(), step):
        yield slice(start, min(start + step, row.numel()))


class Values:
    """Floats: against the oracle's bound, or against explicit limits."""

    def __init__(self, actual: torch.Tensor, truth: OutputTruth, own: Tolerance, *, equal_nan: bool) -> None:
        self.truth, self.own, self.equal_nan = truth, own, equal_nan
        assert truth.native is not None
        explicit = own.explicit or truth.allowance is None
        self.shape = tuple(actual.shape)
        self.ratio = own.required_matched_ratio
        self.actual = flat(actual)
        self.native = flat(truth.native)
        self.expected = self.native if explicit or truth.wide is None else flat(truth.wide)
        self.allowance = None if explicit or truth.allowance is None else flat(truth.allowance)
        self.undecided = None if truth.undecided is None else flat(truth.undecided)
        self.overflow, self.largest = floats.overflow_at(truth.dtype), floats.largest(truth.dtype)

    def tolerated(self, part: slice, expected: torch.Tensor) -> torch.Tensor:
        """Return the tolerated error of a chunk, in the shape of `expected` [chunk]."""
        if self.allowance is not None:
            allowed = self.allowance[part].to(torch.float64)
            return allowed if self.own.scale is None else allowed * self.own.scale
        return (self.own.atol or 0.0) + (self.own.rtol or 0.0) * expected.abs()

    def limit(self, index: int) -> float:
        """Return the bound at an element."""
        part = slice(index, index + 1)
        return float(self.tolerated(part, self.expected[part].to(torch.float64)))

    def values(self, index: int) -> tuple[Any, Any]:
        """Return what an element is and what it should be."""
        return self.actual[index].item(), self.expected[index].item()

    def masks(self, part: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return value misses, non-finite ones, blameless ones of those, |error| and tolerated error: each [chunk]."""
        a, e = self.actual[part].to(torch.float64), self.expected[part].to(torch.float64)
        tol = self.tolerated(part, e)
        error = (a - e).abs()
        a_ok, e_ok = torch.isfinite(a), torch.isfinite(e)
        size = e.abs()
        reach = size if self.allowance is None else size + torch.nan_to_num(tol)
        # It rounds to inf, or may where an honest kernel is that far off: not where the reference cuts it off to fit.
        huge = e_ok & (reach >= self.overflow) & (size != self.largest)
        special = ~(a_ok & e_ok)
        agree = (a == e) | (a.isnan() & e.isnan()) | (huge & ~a_ok & (a.sign() == e.sign()))
        forgiven = agree & e_ok & (size < self.overflow)
        if self.own.allow_negative_inf is not False:
            forgiven |= agree & (e == -torch.inf)
        if self.equal_nan:  # inf - inf, inf * 0: kernels differ in which of NaN and inf comes out
            lost = (e == -torch.inf) | (a == -torch.inf) | a_ok | (e_ok & ~huge)
            forgiven = agree | ~lost
        if self.undecided is not None:
            native_ok = torch.isfinite(self.native[part].to(torch.float64))
            disputed = (native_ok != e_ok) | (native_ok & huge)
            forgiven |= self.undecided[part] & (disputed | a_ok)
        missed = ~special & ~(error <= tol)
        if self.own.max_error_cap is not None:
            missed |= ~special & (error > self.own.max_error_cap)
        if self.undecided is not None:
            missed &= ~self.undecided[part]
        wrong = special & ~forgiven
        return missed, wrong, wrong & agree, torch.where(special, 0.0, error), tol

    def _known(self, values: torch.Tensor, part: slice) -> torch.Tensor:
        """Return a chunk with zeros for what is not finite, which counts by itself, and for what is undecided."""
        finite = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        return finite if self.undecided is None else finite.masked_fill(self.undecided[part], 0.0)

    def bad(self, part: slice) -> torch.Tensor:
        """Return where the chunk misses: bool [chunk]."""
        missed, wrong, *_ = self.masks(part)
        return missed | wrong

    def run(self) -> ErrorTally:
        """Add all chunks up; one transfer from the device for each."""
        tally = ErrorTally()
        plain = self.undecided is None and self.own.max_error_cap is None and self.own.cosine is None
        for part in spans(self.actual):
            if plain and self._clean(tally, part):
                continue
            missed, wrong, blamed, error, tol = self.masks(part)
            e = self.expected[part].to(torch.float64)
            counted = error if self.undecided is None else error.masked_fill(self.undecided[part], 0.0)
            share = torch.where(counted > 0, counted / tol, 0.0)
            ranks = torch.where(missed, share + 1.0, share)
            top = ranks.argmax() if bool(share.numel()) else 0
            rel = torch.where(counted > 0, counted / e.abs(), 0.0)
            rel = torch.nan_to_num(rel, posinf=0.0)
            culprit = wrong & ~blamed
            numbers = [missed.sum(), wrong.sum(), blamed.sum(), counted.max(), rel.max(), share.max(), top]
            numbers += [culprit.to(torch.uint8).argmax(), culprit.any(), wrong.to(torch.uint8).argmax(), ranks.max()]
            values = torch.stack([torch.as_tensor(x).to(torch.float64) for x in numbers]).tolist()
            self._add(tally, part.start, values)
            if self.own.cosine is not None:
                a, e = (self._known(x, part) for x in (self.actual[part].to(torch.float64), e))
                for place, term in enumerate((a * e, a * a, e * e)):
                    tally.dot[place] += float(term.sum())
        return tally

    def _clean(self, tally: ErrorTally, part: slice) -> bool:
        """Add a chunk that is finite and within the bound throughout, as nearly all are; say whether it was one.

        It takes a third of the operations, and on small tensors each costs as much as on large ones. Where the largest
        share is, is asked of chunks with misses only.
        """
        a, e = self.actual[part].to(torch.float64), self.expected[part].to(torch.float64)
        error = torch.sub(a, e).abs_()
        share = error / self.tolerated(part, e)
        rel = error / e.abs()
        max_abs, most, max_rel = torch.stack([error.amax(), share.amax(), rel.amax()]).tolist()
        if not most <= 1.0 or not max_abs < float("inf"):
            return False  # NaN is no share, nor is 0 / 0, of a bound that is zero
        if not max_rel < float("inf"):
            max_rel = float(rel.nan_to_num_(nan=0.0, posinf=0.0).max())
        tally.share = max(tally.share, most)
        tally.max_abs, tally.max_rel = max(tally.max_abs, max_abs), max(tally.max_rel, max_rel)
        return True

    @staticmethod
    def _add(tally: ErrorTally, start: int, values: list[float]) -> None:
        tally.share = max(tally.share, values[5])
        if values[10] >= tally.rank:
            tally.rank, tally.at = values[10], start + int(values[6])
        if values[1] and (tally.special_at < 0 or (values[8] and tally.special == tally.blamed)):
            tally.special_at = start + int(values[7] if values[8] else values[9])
        tally.bad += int(values[0])
        tally.special += int(values[1])
        tally.blamed += int(values[2])
        tally.max_abs, tally.max_rel = max(tally.max_abs, values[3]), max(tally.max_rel, values[4])
