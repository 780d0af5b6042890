"""The search for the smallest case that fails: known failures, then edges, then hypothesis, which also shrinks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import TYPE_CHECKING
from unittest import SkipTest

from pytest_flashinfer.search.pace import Growth
from pytest_flashinfer.search.saved import Drawn, Saved, text_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Check = Callable[[Drawn], Exception | None]
_SHARE = 0.25  # of the time that is left, which no single case may take
_PATIENCE = 3  # times the time limit may be exceeded while fewer than the least cases were tried
_SEEDS = (0, 1, 2)  # added to that of a case with smaller sizes: other contents may fail where these do not
_LONG = 129  # length from which on the bounds of single blocks show
SHRINK_SECONDS = 5.0  # beyond the time limit, once a failure is known


@dataclass
class Outcome:
    """What a search found. `failure` belongs to `smallest`; both are `None` where nothing failed.

    `run` is the seed of the run in which a failing case came up: this one, or an `earlier` one that saved it.
    """

    run: int = 0
    earlier: bool = False
    tried: int = 0
    smallest: Drawn | None = None
    failure: Exception | None = None
    out_of_time: bool = False


@dataclass
class Search:
    """Runs `check` over drawn cases. It returns the failure of a case, or `None`; each case is checked once.

    `edges` come first and in order, then draws from `strategy`. `simpler(drawn)` yields cases that are simpler than a
    failing one. `examples` bounds the cases before a failure, `seconds` their time, which counts from the end of
    the first one unless `built`: it has to wait until processes have started and the solution is built. While fewer
    than `least` cases were tried there is more time: who makes each case last tells nothing. `sizes` are what the time
    of a case grows with, as `growth` learns, `length` is how long its longest sequence is. Where time is up, `stalls`
    says whether the kernel took it: then a long case is tried all the same, if one was to be. Failures that an earlier
    run `saved` come before all else, unless `saved_last`. All cases of this run follow from `run_seed`; it is saved
    with a failure, which another seed would not bring again.
    """

    check: Check
    edges: Iterable[Drawn]
    strategy: SearchStrategy[Drawn]
    simpler: Callable[[Drawn], Iterable[Drawn]]
    examples: int
    seconds: float
    built: bool = False
    seed: int | None = None
    run_seed: int = 0
    saved: Saved = field(default_factory=lambda: Saved(None, b""))
    least: int = 0
    sizes: Callable[[Drawn], Mapping[str, int]] = lambda drawn: drawn[0]
    length: Callable[[Drawn], int] = lambda drawn: max(drawn[0].values(), default=0)
    saved_last: bool = False
    stalls: Callable[[], bool] = lambda: False
    growth: Growth = field(default_factory=Growth)
    outcome: Outcome = field(default_factory=Outcome)
    _known: dict[str, Exception | None] = field(default_factory=dict)
    _deadline: float = math.inf
    _excused: bool = False  # a case that took all the time by itself
    _most: int = 0  # the greatest length that was tried
    _put_off: list[Drawn] = field(default_factory=list)  # long cases that would have taken long

    def run(self) -> Outcome:
        """Search; the smallest failing case is saved, so that the next run starts at it."""
        if self.built:
            self._deadline = time.monotonic() + self.seconds
        edges = chain(() if self.saved_last else self.saved.failures(self._tried), self.edges)
        for drawn in edges:
            if self.outcome.tried >= self.examples or self._over():
                self.outcome.out_of_time = self._over()
                self._put_off += [each for each in chain([drawn], edges) if self.length(each) >= _LONG]
                break
            if self._takes_long(drawn):
                self._put_off += [drawn] if self.length(drawn) >= _LONG else []
                continue
            if self._outcome(drawn) is not None:
                self._fail(drawn)
                break
        else:
            self._draw(self.examples - self.outcome.tried)
        if self.saved_last and self.outcome.smallest is None:
            known = self.saved.failures(self._tried)
            failing = next((drawn for drawn in known if self._outcome(drawn) is not None), None)
            if failing is not None:
                self._fail(failing)
        self._try_long()
        self._simplify()
        if self.outcome.smallest is not None:
            self.saved.save(self.outcome.smallest, self.outcome.run)
        return self.outcome

    def _tried(self, drawn: Drawn) -> bool:
        return text_of(drawn) in self._known

    def _outcome(self, drawn: Drawn) -> Exception | None:
        text = text_of(drawn)
        if text not in self._known:
            start = time.monotonic()
            self._known[text] = self.check(drawn)
            self.outcome.tried += 1
            self._most = max(self._most, self.length(drawn))
            if self.built or self.outcome.tried > 1:
                self.growth.note(self.sizes(drawn), time.monotonic() - start)
            self._time(time.monotonic() - start)
        return self._known[text]

    def _time(self, seconds: float) -> None:
        """Begin the time with the first case, which may build; one other that takes all of it alone is given back.

        How its time would grow with its sizes nobody knew, and the small cases after it tell more than it did. Only
        where more cases are wanted than were tried.
        """
        if self.outcome.tried == 1 and not self.built:
            self._deadline = time.monotonic() + self.seconds
        elif self.outcome.tried < self.least and seconds > self.seconds and not self._excused:
            self._deadline += seconds
            self._excused = True

    def _try_long(self) -> None:
        """Check one long case where a kernel took so long on small ones that none was tried."""
        if self.outcome.smallest is not None or not self.outcome.out_of_time or self._most >= _LONG:
            return
        fitting = [drawn for drawn in self._put_off if (self.expected(drawn) or math.inf) <= self.seconds]
        if fitting and self.stalls() and self._outcome(drawn := max(fitting, key=self.length)) is not None:
            self._fail(drawn)

    def expected(self, drawn: Drawn) -> float:
        """Return how many seconds a case may take, by those before it; 0 where they do not tell."""
        return self.growth.by_axis(self.sizes(drawn))

    def _takes_long(self, drawn: Drawn) -> bool:
        """Say whether a case would take a good part of the time that is left: many small ones tell more."""
        return self.expected(drawn) > max(0.0, _SHARE * (self._end() - time.monotonic()))

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _end(self) -> float:
        """Return when time is up for cases that nobody has seen fail."""
        return self._deadline + (_PATIENCE - 1) * self.seconds * (self.outcome.tried < self.least)

    def _over(self) -> bool:
        """Whether that time is up; one case is always tried."""
        return self.outcome.tried > 0 and time.monotonic() > self._end()

    def _fail(self, drawn: Drawn) -> None:
        failure = self._known[text_of(drawn)]
        if self.outcome.smallest is None:
            known = self.saved.run_of(drawn)
            self.outcome.run = self.run_seed if known is None else known
            self.outcome.earlier = self.outcome.run != self.run_seed
            hangs = getattr(getattr(failure, "verdict", None), "status", "") == "TIMEOUT"
            # a simpler case would hang as well, for as long
            self._deadline = -math.inf if hangs else time.monotonic() + SHRINK_SECONDS
        self.outcome.smallest, self.outcome.failure = drawn, failure

    def _simplify(self) -> None:
        """Step to a simpler case as long as one fails; what hypothesis shrank by choices ends small in sizes too."""
        while self.outcome.smallest is not None and not self._late():
            simpler = takewhile(lambda _: not self._late(), _reseeded(self.outcome.smallest, self.simpler))
            failing = next((drawn for drawn in simpler if self._outcome(drawn) is not None), None)
            if failing is None:
                return
            self._fail(failing)

    def _draw(self, examples: int) -> None:
        """Let hypothesis draw cases and shrink what fails; the last failure it replays is the smallest.

        What `check` raises is about no case: hypothesis, which would try it on others, ends without. It ends where time
        is up too, without drawing what nobody will check.
        """
        import hypothesis

        self.outcome.out_of_time = examples > 0 and self._over()
        if examples <= 0 or self.outcome.out_of_time:
            return
        raised: list[Exception] = []

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=False,  # as hypothesis' profile for CI would, whose draws a kernel could know beforehand
            report_multiple_bugs=False,
            print_blob=False,
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(self.strategy)
        def every(drawn: Drawn) -> None:
            if not self._tried(drawn):  # what is known stays known: nothing looks flaky
                if self._over():
                    self.outcome.out_of_time = True
                    raise SkipTest("time is up")
                if self.growth.by_volume(self.sizes(drawn)) > max(0.0, self.seconds):
                    return  # all the time there is, for one that says no more than smaller ones
            if self._ends(drawn, raised):
                raise CaseFailed

        seeded = every if self.seed is None else hypothesis.seed(self.seed)(every)
        with suppress(CaseFailed, SkipTest):
            seeded()
        if raised:
            raise raised[0]

    def _ends(self, drawn: Drawn, raised: list[Exception]) -> bool:
        """Say whether hypothesis is to shrink: a case fails, or, whatever the case, something was `raised`."""
        if not raised:
            try:
                if self._outcome(drawn) is None:
                    return False
                self._fail(drawn)
            except Exception as error:  # noqa: BLE001 - raised again after hypothesis has ended
                raised.append(error)
        return True


class CaseFailed(Exception):  # noqa: N818 - never leaves this module; one type and one place make one bug to hypothesis
    """A drawn case failed."""


def _reseeded(drawn: Drawn, simpler: Callable[[Drawn], Iterable[Drawn]]) -> Iterator[Drawn]:
    """Yield simpler cases, at last those of other sizes with other seeds: contents are drawn anew with the sizes."""
    for more in _SEEDS:
        for axes, recipe in simpler(drawn):
            if not more or axes != drawn[0]:
                yield axes, recipe.with_seed_after(more)
