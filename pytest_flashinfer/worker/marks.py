"""From activity records to calls: each timed call stands between marks of its own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flashinfer.worker.cupti import Record

_SLACK = 100  # ns by which a mark may seem to start before the activity that it follows on one stream has ended


@dataclass(frozen=True)
class Mark:
    """The three memsets around one call, each known by its size in bytes.

    `before` runs on the caller's stream ahead of the call, `after` right after it returned, `closed` once the device
    has become idle.
    """

    before: int
    after: int
    closed: int


@dataclass(frozen=True)
class Activity:
    """What one call did on the device: from the first start to the last end, over all streams and threads.

    `opened` is the end of the mark before and `closed` the start of the mark after, in nanoseconds: events stand there
    too, which shows whether CUPTI's clock runs at the rate of theirs.
    """

    seconds: float
    kernels: tuple[str, ...]
    kernel_seconds: tuple[float, ...]
    late: bool
    opened: int
    closed: int

    @property
    def window(self) -> float:
        """Return the seconds between the marks."""
        return (self.closed - self.opened) * 1e-9


def assign(marks: Sequence[Mark], records: Iterable[Record], value: int) -> list[Activity | None]:
    """Give each call its activity, or `None` where one of its marks is missing.

    Calls are told apart by the order in which the host launched, not by time: work on a stream that waits for
    nobody may start before the call's first mark has run. `value` is the byte that marks are filled with. A call is
    late if it has work that was launched after it returned, or that ended after its `after` mark had started, which
    means that the caller's stream did not wait for it.
    """
    sizes = {size for mark in marks for size in (mark.before, mark.after, mark.closed)}
    seen: dict[int, Record] = {}
    work: list[Record] = []
    for record in sorted(records, key=_correlation):
        if record.value == value and record.size in sizes:
            seen[record.size] = record
        else:
            work.append(record)
    order = [record.correlation for record in work]
    activities: list[Activity | None] = []
    for mark in marks:
        before, after, closed = seen.get(mark.before), seen.get(mark.after), seen.get(mark.closed)
        if before is None or after is None or closed is None:
            activities.append(None)
            continue
        own = work[bisect_right(order, before.correlation) : bisect_left(order, closed.correlation)]
        activities.append(_activity(own, before, after))
    return activities


def _activity(own: list[Record], before: Record, after: Record) -> Activity:
    if not own:
        return Activity(0.0, (), (), late=False, opened=before.end, closed=after.start)
    start, end = min(record.start for record in own), max(record.end for record in own)
    late = end > after.start + _SLACK or own[-1].correlation > after.correlation
    ordered = sorted(own, key=_start)
    names = tuple(record.name for record in ordered)
    each = tuple((record.end - record.start) * 1e-9 for record in ordered)
    return Activity((end - start) * 1e-9, names, each, late, before.end, after.start)


_start, _correlation = attrgetter("start"), attrgetter("correlation")
