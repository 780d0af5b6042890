"""How long the cases of a search take, and so which of them are called repeatedly."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flashinfer.search import compiling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.judge.oracle.answers import Answers
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.outcome import Compilation

SLOW_SECONDS = 0.06  # per case on average: beyond it, not every case is called repeatedly
REPEATED_EVERY = 4
LONG_SECONDS = 1.0  # of a case that is never called repeatedly, where others are not either
TELLS = 8  # size from which on the time of a case says how it grows
SLOW_SHARE, SLOW_TIMES = 0.5, 20  # of all time and of the reference's, beyond which a solution's calls are to blame


@dataclass
class Pace:
    """Measures the cases that it is entered for; all are called repeatedly once a failure is to be shrunk."""

    large: bool = False  # the cases are so large that even the first few had better be called once
    failing: bool = False
    cases: int = 0
    seconds: float = 0.0
    _start: float = 0.0
    _once: int = 0  # cases in a row that were called once

    def repeats(self, expected: float = 0.0) -> bool:
        """Say whether the next case, which may take so many seconds, is called repeatedly; asked once for each."""
        slow = not self.failing and (self.large or self.seconds > SLOW_SECONDS * self.cases)
        once = slow and (self._once < REPEATED_EVERY - 1 or expected > LONG_SECONDS)
        self._once = self._once + 1 if once else 0
        return not once

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._start
        self.cases += 1


class Spent:
    """What the time of one search went to, in seconds, from now on."""

    def __init__(self, solution: UnderTest, reference: Answers, pace: Pace) -> None:
        self.pace = pace
        self._solution, self._reference = solution, reference
        self._since = solution.waited, reference.native_seconds, len(solution.compiled)

    @property
    def compiled(self) -> Sequence[Compilation]:
        """What Triton compiled meanwhile, as the solution's process tells it."""
        return self._solution.compiled[self._since[2] :]

    @property
    def calls(self) -> float:
        """How long the solution's calls took, by the judge's clock."""
        return self._solution.waited - self._since[0]

    @property
    def own(self) -> float:
        """How long they took beyond compiling."""
        return self.calls - compiling.spent(self.compiled, self.pace.seconds)

    @property
    def native(self) -> float:
        """How long the reference took for the same, as it stands."""
        return self._reference.native_seconds - self._since[1]

    @property
    def by_kernel(self) -> bool:
        """Whether the solution's calls took most of the time, and far longer than the reference does."""
        return self._most(self.own)

    @property
    def by_word(self) -> bool:
        """Whether that is not so only by what the solution's process tells of compiling."""
        return self._most(self.calls) and not self.by_kernel

    def _most(self, seconds: float) -> bool:
        return seconds >= SLOW_SHARE * self.pace.seconds and seconds >= SLOW_TIMES * self.native


@dataclass
class Growth:
    """How the time of cases grows with their sizes, in seconds: by the least that others took for each unit.

    Where that is not known yet a case takes none. `dense`: all sizes count; else some are parts of others, as sequences
    are of all their tokens.
    """

    dense: bool = False
    _axes: dict[str, tuple[float, Mapping[str, int]]] = field(default_factory=dict)  # for each unit of the largest size
    _volume: float = math.inf  # for each unit of the product of all

    def note(self, sizes: Mapping[str, int], seconds: float) -> None:
        """Learn from a case. The first one of a search holds what starts once, and is no such."""
        name, size = largest(sizes)
        known, _ = self._axes.get(name, (math.inf, {}))
        if size >= TELLS and seconds / size < known:
            self._axes[name] = seconds / size, dict(sizes)
        self._volume = min(self._volume, seconds / _product(sizes))

    def by_axis(self, sizes: Mapping[str, int]) -> float:
        """Return what a case takes: a loop over one axis may be slower than another.

        Where others that count are larger than they were in the case that tells, it takes as many times as long, but no
        longer than its volume takes: what a small case took had other reasons than its sizes.
        """
        name, size = largest(sizes)
        rate, others = self._axes.get(name) or min(self._axes.values(), key=lambda known: known[0], default=(0.0, {}))
        more = [n / max(1, others.get(each, 1)) for each, n in sizes.items() if self.dense and each != name]
        alone = rate * size
        return min(alone * math.prod(max(1.0, times) for times in more), max(alone, self.by_volume(sizes)))

    def by_volume(self, sizes: Mapping[str, int]) -> float:
        """Return what a case takes of which several sizes may be large."""
        return self._volume * _product(sizes) if self._volume < math.inf else 0.0


def largest(sizes: Mapping[str, int]) -> tuple[str, int]:
    """Return the largest size with its name, 1 where there is none."""
    name, size = max(sizes.items(), key=lambda pair: pair[1], default=("", 1))
    return name, max(size, 1)


def _product(sizes: Mapping[str, int]) -> int:
    return math.prod(max(1, size) for size in sizes.values())
