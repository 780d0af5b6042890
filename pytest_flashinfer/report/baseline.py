"""Comparing timings with those of an earlier run, kept in pytest-benchmark's JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Any, Final, Literal

from pytest_flashinfer.report.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Verdict = Literal["SAME", "FASTER", "SLOWER", "UNDECIDED"]
THRESHOLD: Final = 0.05  # unless somebody says otherwise
VERDICTS: Final = ("SLOWER", "UNDECIDED", "FASTER", "SAME")  # the worst first
MACHINE: Final = "flashinfer"  # the key under which machine_info holds what this plugin knows of the machine
_CONFIDENCE: Final = 0.95
_MANY: Final = 1000  # rounds
_LEAST: Final = 1e-3  # of a median, where its notch reaches below zero
_NOTCH: Final = 1.57  # of IQR / sqrt(n), on either side of a median: the 95 % interval of a box plot's notch


@dataclass(frozen=True)
class Interval:
    """A median in seconds; the true one lies from `low` to `high` with 95 % confidence, given rounds enough."""

    low: float
    median: float
    high: float
    rounds: int


def interval(durations: Sequence[float]) -> Interval:
    """Return the median's interval by order statistics: no distribution is assumed.

    Fewer than six rounds cannot reach the confidence; the interval is then from the least to the greatest.
    """
    ordered = sorted(durations)
    count = len(ordered)
    outer = max(_left_out(count) - 1, 0)
    return Interval(ordered[outer], median(ordered), ordered[count - 1 - outer], count)


def _left_out(count: int) -> int:
    """Return how many observations on either side may be left out before the confidence is lost."""
    if count > _MANY:  # the binomial's terms are past what a float holds, and its normal limit is exact enough
        return math.floor(count / 2 - NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * math.sqrt(count) / 2 + 0.5)
    tail = 0.0
    for k in range(count // 2):
        tail += 2 * math.comb(count, k) * 0.5**count
        if tail > 1 - _CONFIDENCE:
            return k
    return count // 2


@dataclass(frozen=True)
class Compared:
    """Two measurements set against each other. `ratio` is new over old, `low` and `high` what it may truly be."""

    verdict: Verdict
    ratio: float
    low: float
    high: float
    old: Interval
    new: Interval
    threshold: float

    @property
    def line(self) -> str:
        """Return the verdict in one line."""
        span = f"{self.low - 1:+.1%} to {self.high - 1:+.1%}"
        return (
            f"{self.verdict}: {duration(self.new.median)} against {duration(self.old.median)}"
            f" ({self.ratio - 1:+.1%}, within {span}; threshold {self.threshold:.1%})"
        )


def compare(old: Interval, new: Interval, threshold: float) -> Compared:
    """Compare medians; `threshold` is the share by which a difference has to matter.

    SLOWER and FASTER: the intervals lie apart and the medians differ by more than the threshold. SAME: the ratio is
    within the threshold wherever in their intervals the medians are. Anything else is UNDECIDED, and so is what was
    timed in a single round.
    """
    ratio, low, high = new.median / old.median, new.low / old.high, new.high / old.low
    most = 1 + threshold
    verdict: Verdict = "UNDECIDED"
    if min(old.rounds, new.rounds) < 2:  # noqa: PLR2004 - nothing is known of the spread
        return Compared(verdict, ratio, low, high, old, new, threshold)
    if low > 1 and ratio > most:
        verdict = "SLOWER"
    elif high < 1 and ratio < 1 / most:
        verdict = "FASTER"
    elif low >= 1 / most and high <= most:
        verdict = "SAME"
    return Compared(verdict, ratio, low, high, old, new, threshold)


def counted(verdicts: Iterable[str]) -> str:
    """Return how often each verdict was reached, the worst first; empty without any."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


@dataclass(frozen=True)
class Baseline:
    """The timings of an earlier run, by the items' node ids, and the card that they were taken on."""

    path: Path
    card: str
    entries: Mapping[str, Interval]


class BaselineError(ValueError):
    """A file is no pytest-benchmark JSON; one line."""


def read(path: Path) -> Baseline:
    """Read a file that `--benchmark-json` or `--benchmark-save` wrote. Raises BaselineError."""
    if path.exists() and not path.stat().st_size:
        raise BaselineError(f"{path} is empty: if --benchmark-json names it too, write to another file")
    try:
        return timings(path, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, ValueError) else "it holds no benchmarks with their stats"
        message = f"{path} is no JSON of pytest-benchmark: {why}; --benchmark-json=FILE writes one"
        raise BaselineError(message) from error


def timings(path: Path, text: str) -> Baseline:
    """Return what pytest-benchmark's JSON holds. Raises ValueError, LookupError, TypeError or AttributeError."""
    document = json.loads(text)
    entries = {str(each["fullname"]): _entry(each["stats"]) for each in document["benchmarks"]}
    cards = {str(each.get("extra_info", {}).get("device") or "") for each in document["benchmarks"]} - {""}
    card = str(document.get("machine_info", {}).get(MACHINE, {}).get("card") or ", ".join(sorted(cards)))
    return Baseline(path, card, {name: found for name, found in entries.items() if found is not None})


def _entry(stats: Mapping[str, Any]) -> Interval | None:
    """Return the interval of a stored benchmark; without its rounds, what the quartiles allow to say."""
    data = [float(each) for each in stats.get("data") or ()]
    if data:
        found = interval(data)
    else:
        rounds, middle = int(stats["rounds"]), float(stats["median"])
        notch = _NOTCH * float(stats["iqr"]) / math.sqrt(rounds)
        low = max(middle - notch, _LEAST * middle)  # a wide spread leaves a comparison open, but there is a timing
        found = Interval(low, middle, middle + notch, rounds)
    return found if found.low > 0 else None
