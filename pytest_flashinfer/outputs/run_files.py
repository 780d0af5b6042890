"""What a run keeps beside pytest's own reports: items known from earlier traces, benchmark results, kernel calls."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.model import Environment
from pytest_flashinfer.outputs.outcomes import EARLIER
from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.run.distribution import is_worker

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.data.calls import KernelCalls
    from pytest_flashinfer.data.model import Definition, Solution, Workload
    from pytest_flashinfer.data.unreadable import Unreadable
    from pytest_flashinfer.report.held import Held, HeldTraces
    from pytest_flashinfer.run.session import FibSession


class Records:
    """The hooks behind `--fib-resume`, `--fib-results` and `--fib-calls`.

    Raises `pytest.UsageError` for a kernel calling record that has faults, and where results cannot be written in the
    end, or would take the place of something else.
    """

    def __init__(self, session: FibSession) -> None:
        self.session = session
        self._demand_a_place()
        self.calls = [each for path in session.options.calls for each in _read_calls(path)]
        self._held: dict[str, Held] = {}
        self._written = ""

    def _demand_a_place(self) -> None:
        """See before the run that its results can be written where they are to go, and that nothing is lost there."""
        if self._target is None or is_worker(self.session.config):
            return
        from pytest_flashinfer.report.benchmark import is_results
        from pytest_flashinfer.report.place import obstacle

        reason = obstacle(self._target, "file of benchmark results", is_results)
        if reason:
            raise pytest.UsageError(f"--fib-results: {reason}")

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remove the results of an earlier run: were this one killed, they would be taken for its own."""
        target = self._target
        if target is None or is_worker(session.config):
            return
        with contextlib.suppress(OSError):  # whatever is wrong with the place is said when it is written to
            if target.is_file():
                target.unlink()

    @property
    def _target(self) -> Path | None:
        """Where benchmark results go; nowhere from a run that has none to tell."""
        return None if self.session.lists_only else self.session.options.results

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find what earlier runs left, before this one adds to it."""
        folder = self.session.options.traces
        if not self.session.options.resume or folder is None:
            return
        from pytest_flashinfer.report.held import HeldTraces
        from pytest_flashinfer.report.trace_writer import trace_path

        environment = Environment(self.session.device.name, self.session.versions)
        files: dict[Path, HeldTraces] = {}
        for item in session.items:
            subject = self._subject(item)
            if subject is None:
                continue
            path = trace_path(folder, subject[0])
            if path not in files:
                files[path] = HeldTraces(path, environment)
            found = files[path].find(*subject, _check_of(item))
            if found is not None:
                self._held[item.nodeid] = found

    def is_held(self, item: pytest.Item) -> bool:
        """Whether the outcome of an item is known from an earlier run."""
        return item.nodeid in self._held

    def _subject(self, item: pytest.Item) -> tuple[Definition, Workload, Solution] | None:
        """Return what an item is about, or `None` where it is not of one solution on one workload."""
        params = getattr(getattr(item, "callspec", None), "params", {})
        catalogue = self.session.catalogue
        definition = catalogue.definition(item.path) if {"solution", "workload"} <= params.keys() else None
        workload = None if definition is None else catalogue.workload(item.path, params["workload"])
        if definition is None or workload is None:
            return None
        return definition, workload, catalogue.solutions(definition)[params["solution"]].solution

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip an item whose outcome is known; tables and records count what was found then."""
        held = self._held.get(item.nodeid)
        subject = self._subject(item) if held is not None else None
        if held is None or subject is None:
            return
        check = _check_of(item)
        facts = {
            "fib_definition": subject[0].name,
            "fib_solution": item.callspec.params["solution"],  # type: ignore[attr-defined]
            "fib_author": subject[2].author,
            "fib_check": check,
            "fib_workload": subject[1].uuid,
            "fib_resumed": "passed" if held.status == "PASSED" else "failed",
        }
        item.user_properties += [*facts.items(), *held.facts(timed=check == "test_speed").items()]
        if held.status != "PASSED":
            item.add_report_section("setup", EARLIER, held.log)
        pytest.skip(held.reason)

    def _files(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the file of each solution, and the record of how it came to be, by definition and solution."""
        from pytest_flashinfer.data.agent import beside

        catalogue = self.session.catalogue
        found: dict[tuple[str, str], dict[str, str]] = {}
        for path in catalogue.dataset.definition_files():
            definition = catalogue.definition(path)
            for key, entry in catalogue.solutions(definition).items() if definition is not None else ():
                trace = beside(entry.path, entry.solution.name)
                agent = {} if trace is None else {"agent_trace": str(trace)}
                found[entry.solution.definition, key] = {"file": self._shown(entry.path), **agent}
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the benchmark results; also of a run cut short."""
        target = self._target
        if target is None or is_worker(session.config):
            return
        from pytest_flashinfer.report import benchmark

        device = self.session.device.name
        documents = benchmark.documents(self.session.outcomes.results(), device, self._files())
        documents += benchmark.of_unreadable(self._unreadable(), device, self._shown)
        try:
            benchmark.write(target, documents)
        except OSError as error:
            self._written = self.session.lose(f"--fib-results: {target} cannot be written: {error.strerror}")
            return
        plural = "" if len(documents) == 1 else "s"
        self._written = f"--fib-results: {len(documents)} benchmark result{plural} in {target}"

    def write_summary(self, reporter: pytest.TerminalReporter) -> None:
        """Say where the results are, and what the kernels are worth to each model."""
        if self._written:
            reporter.write_line(self._written)
        if self.calls:
            from pytest_flashinfer.report import kernel_calls

            reporter.write_sep("=", "models")
            for line in kernel_calls.lines(
                self.calls, self.session.outcomes.results(), self.session.catalogue.dataset.names
            ):
                reporter.write_line(line)

    def _shown(self, said: object) -> str:
        return from_here(self.session.config, said)

    def _unreadable(self) -> list[Unreadable]:
        """Return the solution files that cannot be read: none of them ran, whatever was chosen to run."""
        shard = self.session.options.shard
        return self.session.catalogue.unreadable() if shard is None or shard[0] == 1 else []


def _check_of(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", item.name))


def _read_calls(path: Path) -> list[KernelCalls]:
    from pytest_flashinfer.data.calls import load_calls

    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    read = [load_calls(file) for file in files]
    faults = [str(fault) for loaded in read for fault in loaded.faults]
    if faults or not files:
        found = "\n".join(faults) or f"there is no .json file in {path}"
        raise pytest.UsageError(f"--fib-calls: {found}")
    return [loaded.value for loaded in read if loaded.value is not None]
