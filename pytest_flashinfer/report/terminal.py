"""The tables at the end of a run, written with pytest's own writer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_flashinfer.report import table
from pytest_flashinfer.report.results import standings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_flashinfer.report.results import Result

_UNBOUNDED = 1000  # columns of a log that nobody folds


def summary(reporter: pytest.TerminalReporter, results: Sequence[Result]) -> None:
    """Write one table per definition, unless the run is very quiet (`-qq`) or had no solutions."""
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
