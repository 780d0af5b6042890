"""One fault of a definition, an override or a build, which every item ends with: the terminal tells it in full once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.settings.options import REPLAY

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_OF_MANY = ("INVALID_REFERENCE", "COMPILE_ERROR")  # no finding about one case
_OF_ONE = ("  case: ", "  the workload is at ", "  found by an earlier run", REPLAY)


class Repeated:
    """The hook that shortens what is shown again; reports, files and a verbose run have all of it."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        """Have the failures shown with the second of several alike cut to its first line."""
        whole = [] if terminalreporter.verbosity > 0 else list(_repeats(terminalreporter))
        for entry, lines in whole:
            entry.lines = [lines[0], "  as above"]
        try:
            return (yield)
        finally:
            for entry, lines in whole:
                entry.lines = lines


def _repeats(reporter: pytest.TerminalReporter) -> Iterator[tuple[Any, list[str]]]:
    """Yield what pytest shows of each failure that one before it is like, and the lines of that."""
    seen: set[tuple[str, object, tuple[str, ...]]] = set()
    for report in (*reporter.stats.get("error", ()), *reporter.stats.get("failed", ())):
        entries: Any = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", None)
        lines: list[str] = entries[-1].lines if entries else []
        if not lines or not lines[0].startswith(_OF_MANY):
            continue
        facts = dict(report.user_properties)
        of_solution = facts.get("fib_solution") if lines[0].startswith("COMPILE_ERROR") else None
        told = tuple(line for line in lines if not line.startswith(_OF_ONE))
        key = (report.nodeid.partition("::")[0], of_solution, told)
        if key in seen:
            yield entries[-1], lines
        seen.add(key)
