"""Rows to what a page shows: chapters of definitions, each with one ranked board a card."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pytest_flashinfer.report.html.rows import PASSED
from pytest_flashinfer.report.results import standings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.report.html.rows import Boards, Row, Rows, Told
    from pytest_flashinfer.report.results import Standing

UNKNOWN = "unknown"
MAX_STANDINGS = 500  # of one board; the best are shown


@dataclass(frozen=True)
class Failing:
    """All failures of a solution with one status, told by that of the smallest case.

    `count` is how many workloads it has; `drawn` says whether it also failed at sizes that were drawn.
    """

    solution: str
    status: str
    count: int
    drawn: bool
    smallest: Row


@dataclass
class Board:
    """How the solutions of a definition did on one card, best first."""

    card: str
    standings: list[Standing]
    rows: Mapping[str, Mapping[str | None, Row]]
    failures: list[Failing]
    left_out: int = 0

    @property
    def best(self) -> Standing | None:
        """The first, if nothing of it failed and it has a time."""
        first = self.standings[0] if self.standings else None
        return first if first is not None and not first.failures and first.speedups else None

    @property
    def right(self) -> int:
        """How many solutions have no failure."""
        return sum(not each.failures for each in self.standings)


@dataclass
class Chapter:
    """A definition with its workloads in the order of their sizes."""

    name: str
    op_type: str
    definition: Definition | None
    boards: list[Board]
    workloads: list[tuple[str, Mapping[str, int]]]

    @property
    def axes(self) -> list[str]:
        """The axes that the workloads bind, those that vary first."""
        names = dict.fromkeys(name for _, axes in self.workloads for name in axes)
        values = {name: len({axes.get(name) for _, axes in self.workloads}) for name in names}
        return sorted(names, key=lambda name: -min(values[name], 2))

    @property
    def authors(self) -> set[str]:
        """Everybody who has a solution here."""
        return {each.author for board in self.boards for each in board.standings}


@dataclass
class Report:
    """Everything on the page; `facts` are lines on how the run was made, `notes` what was cut or left out."""

    title: str
    chapters: list[Chapter]
    environments: list[tuple[str, tuple[tuple[str, str], ...], int]]
    told: Told
    facts: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    made: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def cards(self) -> list[str]:
        """All cards, sorted."""
        return sorted({board.card for chapter in self.chapters for board in chapter.boards})

    @property
    def op_types(self) -> list[str]:
        """All op_types, sorted."""
        return sorted({chapter.op_type for chapter in self.chapters})

    @property
    def authors(self) -> list[str]:
        """All authors, sorted; the empty string for those nobody told of."""
        return sorted({author for chapter in self.chapters for author in chapter.authors})

    def count(self, status: str | None = None) -> int:
        """Return how many evaluations there are, or how many with a status."""
        rows = (
            row
            for chapter in self.chapters
            for board in chapter.boards
            for group in board.rows.values()
            for row in group.values()
        )
        return sum(status is None or row.status == status for row in rows)


def make(rows: Rows, told: Told, title: str, facts: Sequence[str] = (), notes: Sequence[str] = ()) -> Report:
    """Rank everything; definitions in the order of op_type and name, cards by name."""
    told = told.cleaned()
    chapters = [_chapter(name, rows, told) for name in rows.boards]
    chapters.sort(key=lambda chapter: (chapter.op_type, _natural(chapter.name)))
    environments: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
    for (card, libs), count in (+rows.environments).items():  # without those of which no evaluation is left
        environments[card, tuple(sorted(libs))] += count
    counted = [(card, libs, count) for (card, libs), count in sorted(environments.items())]
    report = Report(title, chapters, counted, told, facts, list(notes))
    if rows.replaced:
        report.notes.append(
            f"{rows.replaced:,} evaluations were made again for the same solution, workload and card: the latest counts"
        )
    for chapter in chapters:
        for board in chapter.boards:
            if board.left_out:
                report.notes.append(f"{chapter.name} on {board.card}: {board.left_out:,} solutions left out, the last")
    return report


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts `n128` before `n1024`."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d{1,18})", name)]


def _chapter(name: str, rows: Rows, told: Told) -> Chapter:
    definition = told.definitions.get(name)
    op_type = definition.op_type if definition is not None else rows.op_types.get(name, UNKNOWN)
    workloads = sorted(rows.workloads.get(name, {}).items(), key=lambda item: (*_sizes(item[1]), item[0]))
    boards = [_board(name, card, rows.boards, told) for card in sorted(rows.boards[name])]
    return Chapter(name, op_type, definition, boards, workloads)


def _sizes(axes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(axes[name] for name in sorted(axes))


def _board(name: str, card: str, boards: Boards, told: Told) -> Board:
    rows = boards[name][card]
    results = [row.result(told.author(name, solution)) for solution, group in rows.items() for row in group.values()]
    ranked = standings(results)[name]
    failures = [failing for each in ranked[:MAX_STANDINGS] for failing in _failures(each.solution, rows[each.solution])]
    return Board(card, ranked[:MAX_STANDINGS], rows, failures, max(0, len(ranked) - MAX_STANDINGS))


def _failures(solution: str, rows: Mapping[str | None, Row]) -> list[Failing]:
    groups: dict[str, list[Row]] = {}
    for row in rows.values():
        if row.status != PASSED:
            groups.setdefault(row.status, []).append(row)
    return [_failing(solution, status, group) for status, group in groups.items()]


def _failing(solution: str, status: str, rows: Sequence[Row]) -> Failing:
    listed = sum(row.workload is not None for row in rows)
    return Failing(solution, status, listed, listed < len(rows), min(rows, key=lambda row: row.size))
