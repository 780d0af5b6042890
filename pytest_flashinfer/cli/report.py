"""`report TRACES... -o FILE`: one HTML page from the trace lines of one or several runs, with nothing run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.report.html import boards, extra, gather, page
from pytest_flashinfer.report.numbers import count
from pytest_flashinfer.report.place import obstacle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flashinfer.report.html.rows import Rows, Told


class CannotReportError(ValueError):
    """Why there is no report, in one line."""


def run(
    traces: Sequence[Path], target: Path, definitions: Sequence[Path], solutions: Sequence[Path], title: str
) -> int:
    """Write the page and say what is in it; return 1 where a trace line cannot be read, which the page names too.

    Raises CannotReportError where a package is missing or nothing can be shown, OSError for a file.
    """
    missing = extra.missing()
    if missing:
        raise CannotReportError(missing)
    if reason := obstacle(target, "HTML report", page.is_page):
        raise CannotReportError(f"-o {reason}")
    for path in (*definitions, *solutions):
        path.stat()
    files = gather.trace_files(traces)
    rows, faults = gather.read_rows(files)
    if not rows.boards:
        raise CannotReportError(f"no evaluation in {', '.join(map(str, traces))}: give the folders of --fib-traces")
    told = _told(traces, definitions, solutions, rows)
    notes = [f"not read: {line}" for line in gather.first_lines(faults)]
    report = boards.make(rows, told, title, notes=notes)
    size = page.write(target, report)
    for line in notes:
        sys.stderr.write(f"{line}\n")
    summed = f"{count(report.count(), 'evaluation')} of {count(len(report.chapters), 'definition')}"
    sys.stdout.write(f"{target}: {summed}, {size / 1e6:.1f} MB\n")
    return 1 if faults else 0


def _told(traces: Sequence[Path], definitions: Sequence[Path], solutions: Sequence[Path], rows: Rows) -> Told:
    found = definitions or gather.beside_traces(traces, "definitions")
    dataset = DataSet(found, solutions or gather.beside_traces(traces, "solutions"), ())
    return gather.told(dataset, rows.boards)
