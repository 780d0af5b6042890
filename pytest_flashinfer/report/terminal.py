"""The tables at the end of a run, written with pytest's own writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.report import table
from pytest_flashinfer.report.results import Result, standings

if TYPE_CHECKING:
    import pytest


def results_of(reporter: pytest.TerminalReporter) -> list[Result]:
    """Return the records of all finished items, whichever process ran them."""
    found = []
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in reporter.stats.get(outcome, []):
            if getattr(report, "when", None) != "call" and outcome == "passed":
                continue
            text = str(report.longrepr) if outcome in ("failed", "error") and report.longrepr else ""
            state = "failed" if outcome == "error" else outcome
            result = Result.from_properties(getattr(report, "user_properties", ()), state, text)
            if result is not None:
                found.append(result)
    return found


def summary(reporter: pytest.TerminalReporter) -> None:
    """Write one table per definition, unless the run is quiet or had no solutions."""
    results = results_of(reporter)
    if not results or reporter.verbosity < 0:
        return
    reporter.write_sep("=", "kernels")
    for line, failed in table.lines(standings(results), reporter._tw.fullwidth):  # noqa: SLF001 - pytest has no other name for the width
        reporter.write_line(line, red=failed)
