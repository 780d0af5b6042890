"""How often a call is timed, and whether the clocks agree about it."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flashinfer.worker.clock import Clock, Span
    from pytest_flashinfer.worker.processor_time import ProcessorTime

LAUNCHES = 20
_BATCH = 3  # calls between two looks at whether the times have settled
_MOST_BATCHES = 10
MOST_SECONDS = 0.3
_STEADY = 0.02
_STEP = 1e-6  # seconds: how well CUDA events repeat
_SLACK = 50e-6  # what a preemption may add to a reading of the host's clock
_BETWEEN = 100e-6  # seconds between two readings of one clock with little between them, on a busy machine
_REST = 10e-3  # of work around a call, for messages and for a second copy of its result
_COPYING = 4e-9  # seconds for a byte of that
_WAKING = 100e-6  # what waiting for the device may add: on a virtual machine with many cores in use it wakes up late


def measure(clock: Clock, call: Callable[[], object], launches: int = LAUNCHES) -> list[Span]:
    """Warm up until the times have settled, then time `launches` calls; their number is fixed beforehand."""
    warm_up(clock, call)
    for _ in range(launches):
        with clock.span():
            call()
    return clock.read()


def warm_up(clock: Clock, call: Callable[[], object], seconds: float = MOST_SECONDS) -> int:
    """Call until two batches in a row took the same time, or `seconds` are over; returns the number of calls."""
    earlier, end = float("inf"), time.perf_counter() + seconds
    calls = 0
    for _ in range(_MOST_BATCHES):
        for _ in range(_BATCH):
            with clock.span():
                call()
            calls += 1
            if time.perf_counter() > end:
                break
        now = median(clock.skip())
        if steady(earlier, now) or time.perf_counter() > end:
            break
        earlier = now
    return calls


def steady(earlier: float, now: float) -> bool:
    """Whether two medians, in seconds, are equal for the purpose of ending a warm-up."""
    return abs(now - earlier) <= max(_STEADY * now, _STEP)


def disagreement(spans: Sequence[Span], judge_seconds: float | None = None, *, on_card: bool = False) -> str | None:
    """Return why the clocks that timed `spans` contradict each other, or `None`.

    `judge_seconds` is how long the judge waited for all of `spans`, by its own clock. Medians are compared, so that
    one preempted call proves nothing. A contradiction means that the time cannot be trusted, not that it is wrong.
    The clock of a card always has the events that others are checked by: with `on_card` no time stands without them.
    """
    total = sum(max(span.seconds, span.host_seconds) for span in spans)
    if judge_seconds is not None and total > judge_seconds + _SLACK:
        return f"the worker's clock says {total * 1e3:.3f} ms where the judge waited {judge_seconds * 1e3:.3f} ms"
    timed = [span for span in spans if span.event_seconds is not None and span.wall_seconds is not None]
    if on_card and (len(timed) < len(spans) or any(span.source == "wall" for span in spans)):
        return "the worker's clock does not say what CUDA events say, as the clock of a card does"
    return _against_events(timed) if timed else None


def hidden(
    spans: Sequence[Span], told: Sequence[float], waited: Sequence[float], used: Sequence[ProcessorTime], nbytes: int
) -> str | None:
    """Return why a wall clock's `spans` cannot be all that their calls took, or `None`.

    In seconds, `told` is what the worker said with each answer, before the next call could change it, and `waited` for
    how long the judge waited for that; `used` is the worker's processor time meanwhile, results have `nbytes`. On a
    busy machine a judge waits for a worker that waits for a processor, and other threads of that one may spin for want
    of work: neither alone says that something was done behind the clock, nor do both where it was waited for a
    processor. Some work may be hidden in what there is to do anyway, most of a long call cannot.
    """
    said = median(span.seconds for span in spans)
    beside = median(first - 1.1 * span.seconds for first, span in zip(told, spans, strict=True))
    if beside > _BETWEEN:
        return f"the worker's clock says {said * 1e3:.3f} ms, and its answers had said {median(told) * 1e3:.3f} ms"
    more = median(map(_beside, spans, waited, used))
    if more > said + _REST + nbytes * _COPYING:
        return f"the worker's clock says {said * 1e3:.3f} ms, and it worked {more * 1e3:.3f} ms more"
    return None


def _beside(span: Span, waited: float, used: ProcessorTime) -> float:
    """Return for how long a worker worked outside a span, at the least: inside it may have had all processors."""
    return min(waited - span.seconds - used.queued, used.worked - (os.cpu_count() or 1) * span.seconds)


def _against_events(timed: Sequence[Span]) -> str | None:
    """Return why CUDA events and the device's being busy contradict the spans that have them, or `None`."""
    seconds, host = median(span.seconds for span in timed), median(span.host_seconds for span in timed)
    events = median(span.event_seconds or 0.0 for span in timed)
    wall = median(span.wall_seconds or 0.0 for span in timed)
    # The device may pause for the host between kernels; beyond that, all clocks saw the same work.
    most = 1.1 * seconds + host + _SLACK
    if wall > most + _WAKING:
        return f"the device was busy for {wall * 1e6:.1f} us where the clock says {seconds * 1e6:.1f} us"
    if events > most:
        return f"CUDA events say {events * 1e6:.1f} us where the clock says {seconds * 1e6:.1f} us"
    if events < 0.98 * seconds - 2e-6 and not any(span.late for span in timed):
        return f"CUDA events say {events * 1e6:.1f} us where the clock says {seconds * 1e6:.1f} us"
    return None
