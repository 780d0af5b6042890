"""The HTML report of a run, written at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.report.html import extra, page
from pytest_flashinfer.report.place import obstacle

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.report.html.rows import Told
    from pytest_flashinfer.run.session import FibSession


class HtmlReport:
    """The hook behind `--fib-report`, of the process that has all results.

    Raises `pytest.UsageError` at once where the report cannot be written in the end, or would take the place of
    something else.
    """

    def __init__(self, session: FibSession, target: Path) -> None:
        reason = extra.missing() or ("" if session.lists_only else obstacle(target, "HTML report", page.is_page))
        if reason:
            raise pytest.UsageError(f"--fib-report: {reason}")
        self.session, self.target = session, target
        self._written = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Write the page; also of a run cut short, but not of one that only lists."""
        if self.session.lists_only:
            return
        from pytest_flashinfer.report.html import boards, rows

        session = self.session
        found = rows.of_run(session.outcomes.results(), session.device.name, session.versions, self._workloads())
        report = boards.make(found, self._told(), "Kernel report", session.header())
        try:
            size = page.write(self.target, report)
        except OSError as error:
            self._written = session.lose(f"--fib-report: {self.target} cannot be written: {error.strerror}")
            return
        self._written = f"--fib-report: {self.target} ({size / 1e6:.1f} MB)"

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say where the page is."""
        if self._written:
            reporter.write_line(self._written)

    def _workloads(self) -> dict[str, dict[str, Workload]]:
        catalogue = self.session.catalogue
        return {
            name: {workload.uuid: workload for path in paths for workload in catalogue.listed(path)}
            for name, paths in catalogue.dataset.names.items()
        }

    def _told(self) -> Told:
        """Return what the catalogue knows, by the keys of its solutions: names that two have are told apart there."""
        from pytest_flashinfer.data.agent import beside
        from pytest_flashinfer.report.html.rows import Told

        catalogue, told = self.session.catalogue, Told()
        for name, paths in catalogue.dataset.names.items():
            definition = catalogue.definition(paths[0])
            if definition is None or len(paths) > 1:
                continue
            told.definitions[name] = definition
            for key, entry in catalogue.solutions(definition).items():
                told.solutions[name, key] = entry.solution
                trace = beside(entry.path, entry.solution.name)
                if trace is not None:
                    told.conversations[name, key] = str(trace)
        return told
