"""A clock for pytest-benchmark that shows durations measured elsewhere.

The worker times each call on the device. pytest-benchmark reads `now` before and after a round; `play` advances it by
that round's duration, so that statistics, histograms and comparisons are those of device time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_reading = 0.0  # seconds


def now() -> float:
    """Return the clock's reading in seconds; a plain function, since its name goes into the JSON."""
    return _reading


def play(durations: Iterable[float]) -> Callable[[], None]:
    """Return a function whose calls take the given durations in turn; the clock starts at zero.

    Starting anew keeps the differences exact: at 1e-6 s a sum over hours would lose digits.
    """
    remaining = iter(durations)

    def one_round() -> None:
        global _reading  # noqa: PLW0603 - pytest-benchmark takes a function for a clock, not an object
        _reading = next(remaining, _reading)  # a profiler calls once more than there are rounds

    return one_round


def reset() -> None:
    """Set the clock to zero, as each round's setup does."""
    global _reading  # noqa: PLW0603
    _reading = 0.0
