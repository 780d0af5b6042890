"""What the reports of items say beside their outcome, and the trace lines that are written of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer import sources
from pytest_flashinfer.items import KernelItem
from pytest_flashinfer.report.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_flashinfer.outputs.trace_lines import Tracer
    from pytest_flashinfer.run.session import FibSession

PRINTED = (4_000, 6_000)  # characters of what a solution prints in an item that are kept, of beginning and end


class ItemReports:
    """The hooks that complete reports."""

    def __init__(self, session: FibSession) -> None:
        self.session = session
        self.tracer: Tracer | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Get ready to write trace lines. Raises pytest.UsageError where none can be written."""
        from pytest_flashinfer.outputs.trace_lines import tracer_of

        self.tracer = tracer_of(self.session)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the verdict's status and what the solution printed to the reports of its item, junit's among them."""
        _add_printed(item, call)
        _add_status(item, call)
        report = yield
        benchmark = getattr(item, "funcargs", {}).get("benchmark")
        if benchmark is not None and (self.session.lists_only or (report.failed and report.when == "call")):
            benchmark.skipped = True  # pytest-benchmark would warn of a fixture that nobody came to use
        if report.failed:
            _add_source(item, report)
        _place_skip(item, report)
        if self.tracer is not None:
            self.tracer.note(item, report)
        return report

    def pytest_sessionfinish(self) -> None:
        """Have a run that could not write its traces fail."""
        if self.tracer is not None and self.tracer.lost:
            self.session.lose(self.tracer.lost)

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say why traces could not be written."""
        if self.tracer is not None and self.tracer.lost:
            reporter.write_line(self.tracer.lost)


def _add_printed(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    take_log = getattr(getattr(item, "funcargs", {}).get("solution"), "take_log", None)
    log = take_log() if take_log is not None and call.when == "call" else ""
    if log:
        item.add_report_section("call", "stdout and stderr of the solution", excerpt(log, *PRINTED))


def _add_status(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    failure = call.excinfo.value if call.excinfo is not None else None
    verdict = getattr(failure, "verdict", None)
    if verdict is not None:
        kept = [pair for pair in item.user_properties if pair[0] != "status"]
        item.user_properties[:] = [*kept, ("status", verdict.status)]
        if not getattr(failure, "built", True):
            item.user_properties.append(("fib_unbuilt", verdict.status))


def _place_skip(item: pytest.Item, report: pytest.TestReport) -> None:
    """Have a skip of a kernel's item point at the line of its workload or definition, not of who found the reason."""
    if report.skipped and isinstance(report.longrepr, tuple) and isinstance(item, KernelItem):
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), 1 + (line or 0), report.longrepr[2])


def _add_source(item: pytest.Item, report: pytest.TestReport) -> None:
    """Say in the properties of a failed report which line of the solution it is about."""
    place = sources.blamed(item, report.longreprtext)
    if place is not None:
        for properties in (item.user_properties, report.user_properties):  # junit reads those of the teardown
            properties[:] = [pair for pair in properties if pair[0] != sources.PROPERTY]
            properties.append((sources.PROPERTY, f"{place[0]}:{place[1]}"))
