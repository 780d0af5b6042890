"""What items have noted for the end of the run: on how little some passed, and what reading other forms changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PROPERTY = "fib_note"
LITTLE = "fib_little"  # of an item that passed
_SHOWN = 5  # items that are named


def summary(reporter: pytest.TerminalReporter) -> None:
    """Print the notes of all definitions, each once; nothing unless the run is verbose."""
    if reporter.verbosity <= 0:
        return
    notes = _noted(reporter, PROPERTY)
    if notes:
        reporter.write_sep("=", "read into the canonical form")
        for note in notes:
            reporter.write_line(note)


def of_little(reporter: pytest.TerminalReporter) -> None:
    """Name the items that passed on little, unless the run is very quiet: who gave little may not know how little."""
    notes = _noted(reporter, LITTLE)
    if not notes or reporter.verbosity < -1:
        return
    reporter.write_line("passed on little (--fib-seconds and --fib-examples give more):")
    more = [f"and {len(notes) - _SHOWN} more"] if len(notes) > _SHOWN else []
    for text in (*notes[:_SHOWN], *more):
        reporter.write_line(f"  {text}")


def _noted(reporter: pytest.TerminalReporter, name: str) -> list[str]:
    reports = (report for group in reporter.stats.values() for report in group)
    properties = (pair for report in reports for pair in getattr(report, "user_properties", ()))
    return list(dict.fromkeys(str(text) for key, text in properties if key == name))
