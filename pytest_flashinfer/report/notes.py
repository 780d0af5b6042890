"""What was changed in reading definitions of other forms, at the end of a verbose run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PROPERTY = "fib_note"


def summary(reporter: pytest.TerminalReporter) -> None:
    """Print the notes of all definitions, each once; nothing unless the run is verbose."""
    if reporter.verbosity <= 0:
        return
    reports = (report for group in reporter.stats.values() for report in group)
    properties = (pair for report in reports for pair in getattr(report, "user_properties", ()))
    notes = list(dict.fromkeys(str(text) for key, text in properties if key == PROPERTY))
    if notes:
        reporter.write_sep("=", "read into the canonical form")
        for note in notes:
            reporter.write_line(note)
