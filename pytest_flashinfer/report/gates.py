"""The verdicts against a baseline at the end of a run: a count of each, and a line for whatever is not the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flashinfer.report.terminal import results_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from pytest_flashinfer.report.results import Result

_ORDER = ("SLOWER", "UNDECIDED", "FASTER", "SAME")


def lines(results: Iterable[Result]) -> Iterator[tuple[str, str]]:
    """Yield verdicts and lines, the worst first; nothing where nothing was compared."""
    compared = [(each.compared.partition(":")[0], each) for each in results if each.compared]
    counts = Counter(verdict for verdict, _ in compared)
    if counts:
        yield "", ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict])
    for wanted in _ORDER[:-1]:
        for verdict, each in compared:
            if verdict == wanted:
                place = f"{each.definition} {each.solution} {each.workload or ''}".rstrip()
                yield verdict, f"{place}: {each.compared}"


def summary(reporter: pytest.TerminalReporter) -> None:
    """Write the verdicts, unless the run is quiet or compared nothing."""
    found = list(lines(results_of(reporter)))
    if not found or reporter.verbosity < 0:
        return
    reporter.write_sep("=", "against the baseline")
    for verdict, text in found:
        reporter.write_line(text, red=verdict == "SLOWER", green=verdict == "FASTER")
