"""From finished items to trace lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.model import Environment
from pytest_flashinfer.report.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.run.session import FibSession


class Tracer:
    """Writes the trace lines of one process into `folder`. Raises pytest.UsageError where nothing can be written there.

    `lost` says why a line could not be written, or is empty.
    """

    def __init__(self, folder: Path, session: FibSession) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError(f"--fib-traces: {folder} cannot be written: {error.strerror}") from error
        self.lost = ""
        self.catalogue = session.catalogue
        self.writer = TraceWriter(folder, Environment(session.device.name, session.versions))

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Write the line of a finished call, where it was that of a solution on a workload."""
        params = getattr(getattr(item, "callspec", None), "params", {})
        if report.when != "call" or not {"solution", "workload"} <= params.keys():
            return
        definition = self.catalogue.definition(item.path)
        workload = self.catalogue.workload(item.path, params["workload"])
        if definition is None or workload is None:
            return
        text, printed = report.longreprtext, "".join(f"\n{content}" for _, content in report.sections)
        facts = dict(report.user_properties)
        timed = "latency_s" in facts  # also where a gate says that it is not fast enough
        solution = self.catalogue.solutions(definition)[params["solution"]].solution
        try:
            self.writer.add(definition, workload, solution, facts, text=text, printed=printed, timed=timed)
        except OSError as error:  # what was measured is still told
            where = error.filename or definition.name
            self.lost = self.lost or f"--fib-traces: {where} cannot be written: {error.strerror}"


def tracer_of(session: FibSession) -> Tracer | None:
    """Return the writer of a run's trace lines, or `None` where nobody asked for them."""
    return Tracer(session.options.traces, session) if session.options.traces is not None else None
