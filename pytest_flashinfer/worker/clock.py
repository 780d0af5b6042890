"""The clock that a worker times calls with: spans of device activity on a card, wall clock on the CPU."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

_APPEND = list.append  # what a list of another's making does instead is not asked
_IN_LIST = list.__iter__
Cache = Literal["cold", "warm"]
Source = Literal["cupti", "events", "wall"]


@dataclass(frozen=True)
class Span:
    """One timed call.

    `seconds` is the time the call is judged by: on a card from the start of its first device activity to the end of
    its last, over all streams; 0 where there was none. `host_seconds` is how long the call kept the host. For a
    cross-check, on a card: `event_seconds` is the same span by CUDA events, a slight overestimate, and `wall_seconds`
    is how long the device stayed busy by the host's clock, less what was queued before the call.
    `kernels` names what ran, in order of start, and `kernel_seconds` says for how long each. `late` says that device
    work of the call was not finished on the caller's stream when the call returned. `source` says which clock gave
    `seconds`: `"cupti"`, `"events"` (the fallback, from which nothing is known of kernels and lateness) or `"wall"`;
    `note` says why it is the fallback, or what else there is to be known of it.
    """

    seconds: float
    host_seconds: float
    event_seconds: float | None = None
    wall_seconds: float | None = None
    kernels: tuple[str, ...] = ()
    late: bool = False
    source: Source = "wall"
    kernel_seconds: tuple[float, ...] = ()
    note: str = ""


class Clock(Protocol):
    """Times calls one at a time: `with clock.span(): call()`, then `clock.read()` for all since the last read."""

    def span(self) -> AbstractContextManager[None]:
        """Time the body as one call; a body that raises leaves no span behind."""

    def read(self) -> list[Span]:
        """Return the spans since the last read, in order."""

    def skip(self) -> list[float]:
        """Return the seconds of the calls since the last read as far as they are known at once, and leave these out."""


class WallClock:
    """The CPU's clock: `seconds` and `host_seconds` are the same wall-clock time."""

    def __init__(self) -> None:
        self._now = time.perf_counter_ns  # bound before a solution can replace it in its module
        self._spans: list[Span] = []

    @contextlib.contextmanager
    def span(self) -> Iterator[None]:
        """Time the body as one call."""
        start = self._now()
        yield
        seconds = (self._now() - start) * 1e-9
        _APPEND(self._spans, Span(seconds, seconds))

    def read(self) -> list[Span]:
        """Return the spans since the last read, in order."""
        spans, self._spans = self._spans, []
        return [*_IN_LIST(spans)]

    def skip(self) -> list[float]:
        """Return the seconds of the calls since the last read, and leave these out."""
        return [span.seconds for span in self.read()]


def open_clock(device: str, cache: Cache = "cold") -> Clock:
    """Open the clock of `device` (`"cpu"` or `"cuda"`, `"cuda:N"`), before any solution's code is imported.

    `cache` says whether a card's L2 cache is emptied before each call. On the CPU it has no meaning.
    """
    if device == "cpu":
        return WallClock()
    from pytest_flashinfer.worker.device_clock import DeviceClock

    return DeviceClock(device, cache)
