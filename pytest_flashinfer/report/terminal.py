"""The tables at the end of a run, written with pytest's own writer."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flashinfer.report import table
from pytest_flashinfer.report.results import Result, standings

if TYPE_CHECKING:
    import pytest

_UNBOUNDED = 1000  # columns of a log that nobody folds


def results_of(reporter: pytest.TerminalReporter) -> list[Result]:
    """Return the records of all finished items, whichever process ran them: one for each item.

    An item whose call passed and whose teardown ended in an error has two reports: it failed, once.
    """
    found: dict[tuple[str, str], Result] = {}
    for outcome in ("skipped", "passed", "failed", "error"):  # a later one has the last word about its item
        for report in reporter.stats.get(outcome, []):
            if getattr(report, "when", None) != "call" and outcome == "passed":
                continue
            text = str(report.longrepr) if outcome in ("failed", "error") and report.longrepr else ""
            state = "failed" if outcome == "error" else outcome
            result = Result.from_properties(getattr(report, "user_properties", ()), state, text)
            if result is None:
                continue
            if outcome == "error" and result.status == "PASSED":
                result = replace(result, status="ERROR")  # the kernel was right; what came after it was not
            process = str(getattr(getattr(report, "node", None), "gateway", ""))
            key = (report.nodeid, process)
            if outcome == "error" and key in found and found[key].outcome == "failed":
                continue
            found[key] = result
    return list(found.values())


def summary(reporter: pytest.TerminalReporter) -> None:
    """Write one table per definition, unless the run is very quiet (`-qq`) or had no solutions."""
    results = results_of(reporter)
    if not results or reporter.verbosity < -1:
        return
    reporter.write_sep("=", "kernels")
    for line, colour in table.lines(standings(results), _width(reporter)):
        reporter.write_line(line, **{colour: True} if colour else {})


def _width(reporter: pytest.TerminalReporter) -> int:
    """Return how many columns a line may have; a log has as many as it needs, unless somebody says otherwise."""
    if reporter.isatty or "COLUMNS" in os.environ:
        return reporter._tw.fullwidth  # noqa: SLF001 - pytest has no other name for the width
    return _UNBOUNDED
