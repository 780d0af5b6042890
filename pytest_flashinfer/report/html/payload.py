"""Numbers and texts of a chapter as the page's scripts read them: columns of JSON, compressed and in base64.

Base64 has no character that means anything in HTML, so nothing in a name, a source or a log can end the element that
holds it; and a hundred thousand evaluations take a few hundred kilobytes.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.report.html.conversation import turns
from pytest_flashinfer.report.html.rows import PASSED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flashinfer.data.model import Solution
    from pytest_flashinfer.report.html.boards import Board, Chapter, Failing, Report
    from pytest_flashinfer.report.html.rows import Row, Told

SOURCE_CHARACTERS = 64_000  # of one solution
TEXT_BYTES = 9_000_000  # of all sources, conversations and logs, as they stand in the file


def packed(value: Any) -> str:
    """Compress a JSON value; the same value gives the same text."""
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


def numbers(chapter: Chapter) -> dict[str, Any]:
    """Return the measurements of a chapter: times in microseconds, workloads by their place in its list."""
    places: dict[str | None, int] = {uuid: place for place, (uuid, _) in enumerate(chapter.workloads)}
    return {
        "name": chapter.name,
        "axes": chapter.axes,
        "uuids": [uuid for uuid, _ in chapter.workloads],
        "sizes": [[axes.get(name) for _, axes in chapter.workloads] for name in chapter.axes],
        "boards": [_board(board, places) for board in chapter.boards],
    }


def _board(board: Board, places: Mapping[str | None, int]) -> dict[str, Any]:
    order = {each.solution: number for number, each in enumerate(board.standings)}
    return {
        "card": board.card,
        "solutions": [
            _solution(board.rows[each.solution], places, each.solution, each.author) for each in board.standings
        ],
        "roofline": _roofline(board, places),
        "failures": [_failure(failing, order) for failing in board.failures],
    }


def _solution(
    rows: Mapping[str | None, Row], places: Mapping[str | None, int], name: str, author: str
) -> dict[str, Any]:
    listed = sorted((places[row.workload], row) for row in rows.values() if row.workload in places)
    statuses = [row.status for _, row in listed]
    return {
        "name": name,
        "author": author,
        "at": [place for place, _ in listed],
        "us": [_short(row.latency, 1e6) for _, row in listed],
        "times": [_short(row.speedup) for _, row in listed],
        "status": 0 if all(status == PASSED for status in statuses) else statuses,
    }


def _roofline(board: Board, places: Mapping[str | None, int]) -> list[tuple[int, float]] | None:
    """Return the limit of every workload as any row tells it: it is the card's, not the solution's."""
    found = {
        places[row.workload]: row.roofline * 1e6
        for group in board.rows.values()
        for row in group.values()
        if row.roofline and row.workload in places
    }
    return [(place, float(f"{found[place]:.4g}")) for place in sorted(found)] or None


def _failure(failing: Failing, order: Mapping[str, int]) -> dict[str, Any]:
    case = failing.smallest
    return {
        "solution": order[failing.solution],
        "status": failing.status,
        "count": failing.count,
        "drawn": failing.drawn,
        "axes": case.axes,
        "workload": case.workload,
    }


def _short(number: float | None, scale: float = 1.0) -> float | None:
    return None if number is None else float(f"{number * scale:.4g}")


class Texts:
    """Sources, conversations and logs, chapter by chapter, until the file has had enough of them."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.left = TEXT_BYTES
        self.dropped = 0

    def of(self, chapter: Chapter) -> str:
        """Return the packed texts of a chapter: of all its solutions, or of none where the file is full."""
        logs = [[failing.smallest.log for failing in board.failures] for board in chapter.boards]
        names = dict.fromkeys(each.solution for board in chapter.boards for each in board.standings)
        told = self.report.told
        solutions = {name: found for name in names if (found := _text(chapter.name, name, told, self.report.notes))}
        text = packed({"logs": logs, "solutions": solutions})
        if len(text) > self.left:
            self.dropped += len(solutions)
            note = f"left out: sources, conversations and logs of the report already take {TEXT_BYTES // 10**6} MB"
            text = packed({"logs": [], "solutions": {}, "note": note})
        self.left -= len(text)
        return text


def _text(definition: str, name: str, told: Told, notes: list[str]) -> dict[str, Any]:
    solution = told.solutions.get((definition, name))
    found: dict[str, Any] = {}
    if solution is not None:
        found |= {
            "language": solution.language,
            "description": solution.description,
            "entry": f"{solution.entry_file}::{solution.entry_function}",
            "files": list(_files(solution)),
        }
    path = told.conversations.get((definition, name))
    if path is not None:
        found["turns"], remarks = turns(path)
        notes += remarks
    return found


def _files(solution: Solution) -> Iterable[tuple[str, str, int]]:
    """Yield path, content and how many characters of it were cut off, the entry first."""
    left = SOURCE_CHARACTERS
    for source in sorted(solution.sources, key=lambda source: source.path != solution.entry_file):
        kept = source.content[:left]
        left -= len(kept)
        yield source.path, kept, len(source.content) - len(kept)
