"""The clock of a card: device activity as CUPTI saw it, or CUDA events where another client holds CUPTI."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import cupti
from pytest_flashinfer.worker.clock import Cache, Span
from pytest_flashinfer.worker.clockwork import clockwork
from pytest_flashinfer.worker.marks import Activity, Mark, assign

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_HEAD_START = 5e-3  # seconds; plain torch in loops keeps the host for longer, and its times say so
_OUTRUN = "the host took longer than its head start: its pace may show"
_FIRST_HOST = 300e-6  # what the host's part is taken for until a call after a break has shown it
_BREAK = 1_000_000  # nanoseconds without a call, after which caches have gone cold
_AHEAD, _MARGIN = 2.0, 5e-6  # the head start is this much longer than the host's part took: contents that nobody
# has touched, and caches that others have used meanwhile, make a call's host part longer than that of one repeated
_FADING = 0.8  # a slow call's share in the next head starts: one that is too short puts the host's pace into the span
_TICK = 1e-9  # seconds, below which a time is none
_RATE, _OFFSET = 0.2, 3e-6  # by how much CUPTI and events may differ about one call: a share, and seconds


@dataclass
class _Taken:
    """What the host noted about one call; the device's own account comes with the records."""

    mark: Mark
    ahead_seconds: float  # the head start
    host_seconds: float
    event_seconds: float
    wall_seconds: float


class DeviceClock:
    """Times calls on a card. The caller's stream is the legacy default stream.

    Per call: a head start (a spinning kernel where the L2 flush alone is too short), so that the call's kernels are
    all enqueued by the time the first may start and the host's pace does not show in the span; the flush where the
    cache shall be cold; a mark; the call; a mark; a wait for the device. Nothing here raises: an error of the device is
    for the caller to find.
    """

    def __init__(self, device: str, cache: Cache = "cold") -> None:
        self._card = clockwork(torch.device(device).index or 0)
        self._cold = cache == "cold"
        self._now = time.perf_counter_ns
        self._taken: list[_Taken] = []
        self._host = {"after a break": _FIRST_HOST}
        self._ended = 0
        self._armed = False
        self.fallback = ""  # why events are used, where they are
        self._arm()  # what CUPTI does once is done here, not in the first timing
        self._disarm()

    @contextlib.contextmanager
    def span(self) -> Iterator[None]:
        """Time the body as one call."""
        if not self._taken:
            self._arm()
        card, now = self._card, self._now
        mark = card.new_mark()
        card.l2.release_persisting()
        pace = "after a break" if now() - self._ended > _BREAK else "right after another"
        known = self._host.get(pace, self._host["after a break"])
        given = self._head_start(mark, known)
        if not self._taken:
            card.record(card.events[3])
        start = now()
        yield
        host = now() - start
        card.record(card.events[2])
        card.mark(mark.after)
        card.synchronize()
        wall = now() - start
        card.mark(mark.closed)
        ahead, event = card.elapsed(0, 1), card.elapsed(1, 2)  # how long a spin takes depends on the card's clocks
        busy = max(wall * 1e-9 - ahead, 0.0)
        taken = _Taken(mark, given, host * 1e-9, event, busy)
        self._host[pace] = max(taken.host_seconds, _FADING * self._host.get(pace, 0.0))
        self._taken.append(taken)
        self._ended = now()

    def read(self) -> list[Span]:
        """Return the spans since the last read, in order; clocks of one card are read one after the other."""
        taken, self._taken = self._taken, []
        if not taken:
            return []
        self._card.synchronize()
        activities = self._activities(taken)
        return [self._span(each, activity) for each, activity in zip(taken, activities, strict=True)]

    def skip(self) -> list[float]:
        """Return what events say of the calls since the last read, and leave these out.

        CUPTI goes on recording: to stop it, and to start it again, takes longer than some calls.
        """
        taken, self._taken = self._taken, []
        return [each.event_seconds for each in taken]

    def _span(self, taken: _Taken, activity: Activity | None) -> Span:
        common = (taken.host_seconds, taken.event_seconds, taken.wall_seconds)
        if activity is None:
            seconds = max(taken.event_seconds - self._card.null_seconds, 0.0)
            seconds = seconds if seconds >= _TICK else 0.0  # what subtracting leaves of nothing
            return Span(seconds, *common, source="events", note=self.fallback)
        outrun = taken.host_seconds > taken.ahead_seconds and len(activity.kernels) > 1
        span = Span(activity.seconds, *common, activity.kernels, activity.late, "cupti", activity.kernel_seconds)
        return replace(span, note=_OUTRUN) if outrun else span

    def _arm(self) -> None:
        # Afresh for each batch: a solution that profiles itself leaves CUPTI without our callbacks.
        try:
            cupti.tracer().arm()
        except cupti.CuptiError as error:
            self._armed, self.fallback = False, str(error)
        else:
            self._armed = True

    def _activities(self, taken: list[_Taken]) -> list[Activity | None]:
        nothing: list[Activity | None] = [None] * len(taken)
        if not self._armed:
            return nothing
        try:
            records, dropped = cupti.tracer().drain()
        except cupti.CuptiError as error:
            self.fallback = str(error)
            return nothing
        finally:
            self._disarm()
        if dropped:
            self.fallback = f"CUPTI dropped {dropped} records"
            return nothing
        activities = assign([each.mark for each in taken], records, self._card.value)
        if None in activities:
            self.fallback = "CUPTI's records are incomplete: another client in this process took them"
            return nothing  # calls of one measurement have one clock, or they could not be compared
        windows = zip(taken, activities, strict=True)
        if all(_apart(activity.window, each.event_seconds) for each, activity in windows if activity) and self._drifted(
            activities
        ):
            # A profiler in this process may have had CUPTI stamp records by a clock of its own, for good.
            self.fallback = "CUPTI's clock does not run at the rate of CUDA events"
            return nothing
        return activities

    def _drifted(self, activities: list[Activity | None]) -> bool:
        """Whether the two clocks contradict each other about the whole batch: of one short call events are unsure."""
        first, last = activities[0], activities[-1]
        assert first is not None
        assert last is not None
        return _apart((last.closed - first.opened) * 1e-9, self._card.elapsed(3, 2))

    def _disarm(self) -> None:
        if self._armed:
            cupti.tracer().disarm()
        self._armed = False

    def _head_start(self, mark: Mark, host: float) -> float:
        """Enqueue what keeps the device busy until a call is enqueued whose host part takes `host` seconds.

        Returns for how long, in seconds.
        """
        card = self._card
        card.record(card.events[0])
        card.synchronize()  # the card may have to turn to this process first, which takes it a tenth of a millisecond
        flush = card.flush_seconds if self._cold else 0.0
        spun = max(min(_AHEAD * host + _MARGIN, _MOST_HEAD_START) - flush, 0.0)
        card.record(card.events[0])
        if spun:
            card.spin(spun)
        if self._cold:
            card.l2.empty()
        card.mark(mark.before)
        card.record(card.events[1])
        return spun + flush


def _apart(recorded: float, events: float) -> bool:
    """Whether CUPTI and events contradict each other about a time in seconds; chance may bring that about for one."""
    return abs(recorded - events) > _RATE * events + _OFFSET
