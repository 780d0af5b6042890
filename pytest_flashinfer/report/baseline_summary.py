"""The verdicts against a baseline at the end of a run: a count of each, and a line for whatever is not the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.report.baseline import VERDICTS, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pytest

    from pytest_flashinfer.report.results import Result

_GOOD = frozenset(VERDICTS[2:])  # of which a quiet run says nothing


def lines(results: Iterable[Result]) -> Iterator[tuple[str, str]]:
    """Yield verdicts and lines, the worst first, for the timings of a run that has a baseline.

    Without a verdict are the lines that count: the verdicts, and what the baseline has where it lacks some.
    """
    timed = [each for each in results if each.timed]
    compared = [(each.compared.partition(":")[0], each) for each in timed if each.compared]
    if compared:
        yield "", counted(verdict for verdict, _ in compared)
    if len(compared) < len(timed):
        yield "", f"{len(compared)} of {len(timed)} timings are in the baseline"
    for wanted in VERDICTS[:-1]:
        for verdict, each in compared:
            if verdict == wanted:
                place = f"{each.definition} {each.solution} {each.workload or ''}".rstrip()
                yield verdict, f"{place}: {each.compared}"


def summary(reporter: pytest.TerminalReporter, results: Sequence[Result]) -> None:
    """Write the verdicts of a run that has a baseline; a quiet run has those lines only that somebody has to read."""
    found, quiet = list(lines(results)), reporter.verbosity < 0
    if quiet:
        if all(each.compared.partition(":")[0] in _GOOD for each in results if each.timed):
            return
        found = [(verdict, text) for verdict, text in found if verdict not in _GOOD]
    if found and not quiet:
        reporter.write_sep("=", "against the baseline")
    for verdict, text in found:
        start = "against the baseline: " if quiet and not verdict else ""
        reporter.write_line(f"{start}{text}", red=verdict == "SLOWER", green=verdict == "FASTER")
