"""What a report is made of: one row for each solution, workload and card, whether from trace lines or from a run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pytest_flashinfer.report.excerpt import excerpt
from pytest_flashinfer.report.results import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flashinfer.data.model import Definition, Solution, Status, Workload

PASSED: Status = "PASSED"
LOG_HEAD, LOG_TAIL = 1_500, 2_500  # characters of a log that are kept
_LINE = '{"definition"'  # how the workload line of a drawn failure starts
Names = tuple[str, str]  # of a definition and a solution
Libs = tuple[tuple[str, str], ...]  # versions by library


@dataclass(slots=True)  # a frozen one takes three times as long to make, and there may be a million
class Row:
    """One solution on one workload; `workload` is `None` for sizes that were drawn. Times are in seconds."""

    definition: str
    solution: str
    card: str
    workload: str | None
    axes: Mapping[str, int]
    status: str
    latency: float | None = None
    speedup: float | None = None
    roofline: float | None = None  # the time below which the card cannot be
    bound_share: float | None = None
    log: str = ""
    timestamp: str = ""
    libs: Libs = ()

    @property
    def size(self) -> tuple[int, int]:
        """What makes a case small: its elements, then the sum of its sizes."""
        product = 1
        for size in self.axes.values():
            product *= max(size, 1)
        return product, sum(self.axes.values())

    def result(self, author: str) -> Result:
        """Return the row as the tables at the end of a run count it."""
        share = self.roofline / self.latency if self.roofline and self.latency else None
        return Result(
            self.definition,
            self.solution,
            author,
            "",
            self.workload,
            "passed" if self.status == PASSED else "failed",
            self.status,
            self.latency,
            self.speedup,
            share,
            self.bound_share,
            gated=self.status != PASSED and self.latency is not None,
        )


@dataclass
class Told:
    """What the files of definitions and solutions say of the names in the rows; all of it may be missing."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    solutions: dict[Names, Solution] = field(default_factory=dict)
    conversations: dict[Names, str] = field(default_factory=dict)  # paths of agent traces

    def cleaned(self) -> Told:
        """Return the same with names as the rows have them."""
        pairs = [
            {(clean(definition), clean(name)): value for (definition, name), value in table.items()}
            for table in (self.solutions, self.conversations)
        ]
        return Told({clean(name): value for name, value in self.definitions.items()}, *pairs)  # type: ignore[arg-type]

    def author(self, definition: str, solution: str) -> str:
        """Return who wrote a solution, or the empty string: trace lines do not say it."""
        found = self.solutions.get((definition, solution))
        return found.author if found is not None else ""


Boards = dict[str, dict[str, dict[str, dict["str | None", Row]]]]  # definition, card, solution, workload


class Rows:
    """All rows; of several for the same solution, workload and card the latest counts."""

    def __init__(self) -> None:
        self.boards: Boards = {}
        self.workloads: dict[str, dict[str, Mapping[str, int]]] = {}  # definition, uuid: sizes of the axes
        self.op_types: dict[str, str] = {}
        self.environments: Counter[tuple[str, Libs]] = Counter()
        self.replaced = 0
        self._libs: dict[Libs, Libs] = {}  # one of each: a million rows have a few

    def add(self, row: Row, libs: Mapping[str, str] | None = None) -> None:
        """Add a row that was measured with these versions."""
        if not (row.definition.isprintable() and row.solution.isprintable()):
            row = replace(row, definition=clean(row.definition), solution=clean(row.solution))
        board = self.boards.setdefault(row.definition, {}).setdefault(row.card, {}).setdefault(row.solution, {})
        old = board.get(row.workload)
        if old is not None:
            self.replaced += 1
            if _is_later(old.timestamp, row.timestamp):
                return
            self.environments[old.card, old.libs] -= 1
        key = tuple((libs or {}).items())
        row.libs = self._libs.setdefault(key, key)
        board[row.workload] = row
        if row.workload is not None:
            self.workloads.setdefault(row.definition, {})[row.workload] = row.axes
        self.environments[row.card, row.libs] += 1


def _is_later(one: str, other: str) -> bool:
    """Whether one timestamp is later than another: by the clock, whatever their time zones, or else as text."""
    try:
        return _moment(one) > _moment(other)
    except ValueError:
        return one > other


def _moment(timestamp: str) -> datetime:
    """Read a timestamp; one without a time zone is taken for UTC. Raises ValueError for what is none."""
    zulu = timestamp.endswith(("Z", "z"))  # which Python 3.10 does not read
    found = datetime.fromisoformat(f"{timestamp[:-1]}+00:00" if zulu else timestamp)
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def clean(name: str) -> str:
    """Return a name as an HTML page can hold it: without NUL and halves of characters."""
    return name.encode(errors="replace").decode().replace("\0", "\ufffd")


def shortened(log: str) -> str:
    """Return a log with its middle cut out where it is long."""
    return excerpt(log, LOG_HEAD, LOG_TAIL)


def of_run(
    results: Iterable[Result], card: str, libs: Mapping[str, str], workloads: Mapping[str, Mapping[str, Workload]]
) -> Rows:
    """Return the rows of a finished run; `workloads` are those of each definition by uuid.

    The checks of one workload become one row: it fails where one of them failed, and has the time of the one that
    took it.
    """
    merged: dict[tuple[str, str, str | None], Row] = {}
    for result in results:
        if result.outcome == "skipped":
            continue
        key = (result.definition, result.solution, result.workload)
        stated = workloads.get(result.definition, {}).get(result.workload or "")
        row = _row(result, card, stated.axes if stated is not None else _drawn(result.details))
        merged[key] = _merged(merged[key], row) if key in merged else row
    rows = Rows()
    for row in merged.values():
        rows.add(row, libs)
    return rows


def _row(result: Result, card: str, axes: Mapping[str, int]) -> Row:
    failed = result.outcome == "failed"
    floor = result.roofline * result.latency if result.roofline and result.latency else None
    status = (result.status or "FAILED") if failed else PASSED
    times = (None, None, floor) if failed and not result.gated else (result.latency, result.speedup, floor)
    log = shortened(result.details) if failed else ""
    return Row(result.definition, result.solution, card, result.workload, axes, status, *times, result.bound_share, log)


def _merged(one: Row, other: Row) -> Row:
    for row in (one, other):
        if row.status != PASSED:
            return row
    return other if other.latency is not None else one


def _drawn(details: str) -> Mapping[str, int]:
    """Return the sizes in the workload line that a failure of drawn sizes ends with."""
    for line in details.splitlines():
        start = line.find(_LINE)
        if start >= 0:
            try:
                axes = json.loads(line[start:])["workload"]["axes"]
            except (ValueError, KeyError, TypeError):
                continue
            return {str(name): size for name, size in axes.items() if isinstance(size, int)}
    return {}
