"""What a timing has to reach for its item to pass: a least speedup, and no loss against an earlier run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

import pytest

from pytest_flashinfer.report.baseline import THRESHOLD, Baseline, BaselineError, Compared, compare, interval, read
from pytest_flashinfer.report.numbers import times
from pytest_flashinfer.report.table import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.settings.options import Options

_LEAST: Final = 1e-6  # of a number that a line may give


@dataclass(frozen=True)
class Lines:
    """Numbers by definition, as `NAME:NUMBER` lines or one number for all; of those that match the last counts."""

    rules: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, lines: Iterable[str], where: str, *, shares: bool = False) -> Lines:
        """Read lines. Raises `pytest.UsageError` for one that gives no number, or no share where all are `shares`."""
        rules = []
        for line in lines:
            name, _, text = line.rpartition(":")
            try:
                value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
            except ValueError:
                value = math.nan
            if not _LEAST < value < math.inf:
                number = "a share such as 0.05 or 5%, or NAME:SHARE" if shares else "a number above 0, or NAME:NUMBER"
                raise pytest.UsageError(f"{where}: {line!r}: write {number}")
            if shares and value >= 1:
                raise pytest.UsageError(f"{where}: {_no_share(line, value)}")
            rules.append((name.strip() or "*", value))
        return cls(tuple(rules))

    def of(self, definition: Definition) -> float | None:
        """Return the number for a definition, by its name or op_type."""
        names = (definition.name, definition.op_type)
        found = [value for pattern, value in self.rules if any(fnmatch(name, pattern) for name in names)]
        return found[-1] if found else None


@dataclass(frozen=True)
class Outcome:
    """What the gates say of one timing; `failed` has a line for each not passed, `status` the first one's word."""

    compared: Compared | None = None
    failed: str = ""
    status: str = ""


class TooSlow(AssertionError):  # noqa: N818 - what pytest reports
    """A right kernel is not fast enough; the text is a line for each gate that it does not pass."""

    def text(self) -> str:
        """Return the failure as it is shown."""
        return str(self)


class Gates:
    """The gates of one run. Raises `pytest.UsageError` for a baseline that cannot be compared with on this card."""

    def __init__(self, options: Options, card: str) -> None:
        self._speedups = _both(options.min_speedup, options.ini_min_speedup, "--fib-min-speedup", "fib_min_speedup")
        thresholds = (options.threshold, options.ini_threshold, "--fib-threshold", "fib_threshold")
        self._shares = _both(*thresholds, shares=True)
        self.baseline = _earlier_run(options.baseline, card)

    @property
    def patterns(self) -> Iterator[tuple[str, str]]:
        """The names of definitions and op_types that the command line gives numbers for, each after its switch."""
        for switch, (line, _) in (("--fib-min-speedup", self._speedups), ("--fib-threshold", self._shares)):
            yield from ((switch, pattern) for pattern, _ in line.rules)

    def judge(
        self,
        item: pytest.Item,
        definition: Definition,
        durations: Sequence[float],
        reference: Callable[[], float | None],
    ) -> Outcome:
        """Say whether the durations, in seconds, of an item's calls are good enough.

        `reference` returns the reference's latency; it is asked only where a speedup is demanded.
        """
        compared = self._compared(item, definition, durations)
        lines = [f"{compared.line}: measured twice"] if compared is not None and compared.verdict == "SLOWER" else []
        least = self._number(item, definition, self._speedups, "fib_min_speedup")
        if least is not None and (low := _low(interval(durations).median, reference(), least)):
            lines.append(low)
        return Outcome(compared, "\n".join(lines), lines[0].partition(":")[0] if lines else "")

    def _compared(self, item: pytest.Item, definition: Definition, durations: Sequence[float]) -> Compared | None:
        old = self.baseline.entries.get(item.nodeid) if self.baseline is not None else None
        if old is None:
            return None
        share = self._number(item, definition, self._shares, "fib_threshold")
        if share is not None and share >= 1:  # by a mark: the others were read before
            pytest.fail(f"mark fib_threshold: {_no_share(share, share)}", pytrace=False)
        return compare(old, interval(durations), THRESHOLD if share is None else share)

    @staticmethod
    def _number(item: pytest.Item, definition: Definition, lines: tuple[Lines, Lines], mark: str) -> float | None:
        """Return a number by command line, mark or ini key, the first that gives one."""
        line, ini = lines
        stated = _marked(item, mark)
        return next((value for value in (line.of(definition), stated, ini.of(definition)) if value is not None), None)


def _earlier_run(path: Path | None, card: str) -> Baseline | None:
    """Return what to compare with; a file that cannot be read, or is of another card, ends the run before it starts."""
    if path is None:
        return None
    try:
        baseline = read(path)
    except BaselineError as error:
        raise pytest.UsageError(f"--fib-baseline: {error}") from error
    if baseline.card != card:
        measured = f"measured on {baseline.card}" if baseline.card else "without the name of its card"
        raise pytest.UsageError(f"--fib-baseline: {path} was {measured}, which is not this {card}")
    return baseline


def _marked(item: pytest.Item, name: str) -> float | None:
    """Return the number of a mark, whether or not it is named there. Fails where there is none."""
    mark = item.get_closest_marker(name)
    if mark is None:
        return None
    given = [*mark.args, *mark.kwargs.values()]
    try:
        (value,) = map(float, given)
    except (TypeError, ValueError):
        value = math.nan
    if not _LEAST < value < math.inf:
        shown = ", ".join(map(repr, given))
        pytest.fail(f"mark {name}({shown}): write one number above 0", pytrace=False)
    return value


def _no_share(given: object, value: float) -> str:
    """Say what is wrong with a threshold that hardly any timing can miss: 5 where 5 % is meant, as a rule."""
    return f"{given!r} is {100 * value:g}%: write a share below 1, as 0.05 or 5%"


def _low(latency: float, base: float | None, least: float) -> str:
    """Return why the speedup of a latency over the reference's is too low, or nothing; in one line, both in seconds."""
    if not base:
        return f"NO_SPEEDUP: the reference has no time, and {least:g}x is demanded"
    if base / latency >= least:
        return ""
    both = f"{duration(latency)}, the reference {duration(base)}"
    return f"LOW_SPEEDUP: {times(base / latency, 3)}x is below {least:g}x ({both}): measured twice"


def _both(
    line: Iterable[str], ini: Iterable[str], switch: str, key: str, *, shares: bool = False
) -> tuple[Lines, Lines]:
    return Lines.parse(line, switch, shares=shares), Lines.parse(ini, f"ini key {key}", shares=shares)
