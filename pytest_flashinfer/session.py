"""What one pytest run shares: settings, data set, device and worker pool."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cached_property
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer import options
from pytest_flashinfer.build import requirements
from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.scope import smoke
from pytest_flashinfer.stash import SESSION
from pytest_flashinfer.worker import device as devices

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.data.faults import Fault
    from pytest_flashinfer.data.model import Definition, Solution, Workload
    from pytest_flashinfer.judge.answers import Answers
    from pytest_flashinfer.judge.tolerance import Tolerance
    from pytest_flashinfer.report.traces import TraceWriter
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.pool import Pool


@dataclass(frozen=True)
class Entry:
    """A solution under its key, with its file and the mark that its items carry."""

    solution: Solution
    path: Path
    mark: pytest.MarkDecorator


class FibSession:
    """Everything that outlives one item; heavy parts are made when first asked for."""

    def __init__(self, config: pytest.Config, settings: options.Options) -> None:
        self.config = config
        self.options = settings
        config.stash[SESSION] = self
        self.dataset = DataSet(settings.definitions, settings.solutions, settings.workloads)
        try:
            self.device = devices.find(settings.device, require_gpu=settings.require_gpu, turn=_worker_number())
        except devices.DeviceError as error:
            raise pytest.UsageError(str(error)) from error
        self.scope = options.scope_of(settings, cuda=self.device.kind == "cuda")
        self._explicit_tolerances()  # a spelling that cannot be read ends the run before it starts
        self._pool: Pool | None = None
        self._latencies: dict[tuple[Path, str], float | None] = {}

    def is_definition(self, path: Path) -> bool:
        """Whether a file lies in a definition folder or is a definition file of its own."""
        return any(path == place or place in path.parents for place in self.options.definitions)

    @cached_property
    def solutions(self) -> dict[str, Entry]:
        """Every readable solution by its key: the name, or author and name where a name is taken twice."""
        entries: dict[str, Entry] = {}
        for loaded in self.dataset.solutions:
            solution = loaded.value
            if solution is None:
                continue
            key = solution.name if solution.name not in entries else f"{solution.author}.{solution.name}"
            mark = pytest.mark.solution(name=solution.name, author=solution.author, language=solution.language)
            entries.setdefault(key, Entry(solution, loaded.path, mark))
        return entries

    @cached_property
    def _keys(self) -> dict[str, list[str]]:
        keys: dict[str, list[str]] = {}
        for key, entry in sorted(self.solutions.items()):
            keys.setdefault(entry.solution.definition, []).append(key)
        return keys

    def solution_keys(self, definition: Definition) -> list[str]:
        """Keys of the solutions of a definition, sorted; none where its name is taken twice."""
        return [] if self.dataset.is_ambiguous(definition.name) else self._keys.get(definition.name, [])

    def workloads(self, path: Path, definition: Definition) -> dict[str, Workload]:
        """Return the valid workloads in scope by uuid, in the order of their sizes."""
        valid = [loaded.value for loaded in self.dataset.workloads(path) if loaded.value is not None and not loaded.faults]
        if self.scope == "smoke":
            valid = smoke(definition, valid)
        valid.sort(key=lambda workload: ([workload.axes.get(axis, 0) for axis in definition.var_axes], workload.uuid))
        return {workload.uuid: workload for workload in valid}

    def listed(self, path: Path) -> list[Workload]:
        """Return all readable workloads of a definition, in scope or not: they say what sizes people use."""
        return [loaded.value for loaded in self.dataset.workloads(path) if loaded.value is not None]

    def workload_file(self, path: Path) -> Path | None:
        """Return the file to which a new workload line of a definition belongs."""
        lines, definition = self.dataset.workloads(path), self.dataset.load(path).value
        if lines:
            return lines[0].path
        folders = [place for place in self.options.workloads if place.is_dir()]
        if definition is None or not folders:
            return None
        return folders[0] / definition.op_type / f"{definition.name}.jsonl"

    def unknown_solutions(self) -> list[Fault]:
        """Return a warning for each solution without a definition, those first whose name is nearly one."""
        return sorted(self.dataset.unknown_solutions(), key=lambda fault: "did you mean" not in fault.message)

    def location(self, path: Path, uuid: str | None) -> tuple[Path, int | None]:
        """Return where an item is stated: the workload's line, else the definition's first, counted from 0."""
        if uuid is not None:
            for loaded in self.dataset.workloads(path):
                if loaded.value is not None and loaded.value.uuid == uuid:
                    return loaded.path, loaded.line - 1
        return path, 0

    def problems(self, path: Path) -> tuple[Fault, ...]:
        """Return all that is wrong or odd with a definition's file, its workloads and its solutions."""
        return self.dataset.problems(path)

    def data_root(self, path: Path) -> Path | None:
        """Return the folder below which the stored tensors of a definition's workloads lie."""
        lines = self.dataset.workloads(path)
        return self.dataset.root_of(lines[0].path) if lines else None

    def tolerance(self, definition: Definition, workload: Workload | None, fixture: Tolerance) -> Tolerance:
        """Return the tolerance in force: ini, then workload, then fixture, then command line, the last the strongest."""
        from pytest_flashinfer.judge.tolerance import from_mapping, layered

        stated = workload.tolerance if workload is not None else None
        ini, line = (
            [own for key, own in table.items() if fnmatch(definition.op_type, key) or fnmatch(definition.name, key)]
            for table in self._explicit_tolerances()
        )
        return layered(*ini, from_mapping(asdict(stated)) if stated is not None else None, fixture, *line)

    def _explicit_tolerances(self) -> tuple[dict[str, Tolerance], dict[str, Tolerance]]:
        from pytest_flashinfer.judge.tolerance import ToleranceError, parse_lines

        try:
            return (
                parse_lines(self.options.ini_tolerance, "fib_tolerance"),
                parse_lines(self.options.tolerance, "--fib-tolerance"),
            )
        except ToleranceError as error:
            raise pytest.UsageError(str(error)) from error

    @property
    def pool(self) -> Pool:
        """The processes of this run, started when first asked for; nothing is waited for."""
        if self._pool is None:
            from pytest_flashinfer.worker import sandbox
            from pytest_flashinfer.worker.kernel import cache_folder
            from pytest_flashinfer.worker.pool import Pool

            sandbox.hide_process()
            hidden = [*self.options.definitions, *self.options.solutions, *self.options.workloads]
            self._pool = Pool(str(self.device), [*hidden, self.config.rootpath], cache_folder())
        return self._pool

    @cached_property
    def judge(self) -> Pool:
        """The pool, with torch loaded in this process as well."""
        pool = self.pool
        import torch

        if self.device.kind == "cpu":
            torch.set_num_threads(1)  # the judge compares small pieces; idle threads would spin beside the kernel
        return pool

    def under_test(self, key: str, definition: Definition) -> UnderTest:
        """Return a solution ready to be called; skips with the reason where it cannot run here."""
        from pytest_flashinfer.testing import UnderTest
        from pytest_flashinfer.worker.kernel import Kernel

        solution = self.solutions[key].solution
        reason = self.why_not(solution)
        if reason is not None:
            pytest.skip(f"{key}: {reason}")
        limits = {"timeout": self.options.timeout, "build_timeout": self.options.build_timeout}
        return UnderTest(Kernel(self.judge, definition, solution, **limits))

    def why_not(self, solution: Solution) -> str | None:
        """Return why a solution cannot run on this machine, or `None`."""
        device = self.device
        return requirements.cannot_run(solution, device.kind, device.name, device.capability)

    def answers(self, definition: Definition) -> Answers:
        """Return the truths of a definition's cases."""
        from pytest_flashinfer.judge.answers import Answers

        budget = (1 << 30) if self.device.kind == "cpu" else max(1 << 30, self.device.memory // 16)
        return Answers(self.judge, definition, timeout=max(120.0, self.options.timeout), budget=budget)

    def reference_kernel(self, definition: Definition) -> UnderTest:
        """Return the reference as a solution, so that it is timed in the very same way."""
        from pytest_flashinfer.data.model import Solution, SourceFile
        from pytest_flashinfer.testing import UnderTest
        from pytest_flashinfer.worker.kernel import Kernel

        source = SourceFile("reference.py", definition.reference or "")
        solution = Solution(
            "reference",
            definition.name,
            "reference",
            "python",
            source.path,
            definition.entry,
            (source,),
            destination_passing=definition.reference_style == "destination",
        )
        return UnderTest(Kernel(self.judge, definition, solution, timeout=max(120.0, self.options.timeout)))

    def reference_latency(self, path: Path, uuid: str, measure: Callable[[], list[float]]) -> float | None:
        """Return the reference's latency on a workload in seconds, measured once; `None` where it cannot run."""
        key = (path, uuid)
        if key not in self._latencies:
            durations = measure()
            self._latencies[key] = median(durations) if durations else None
        return self._latencies[key]

    def replay(self, node_id: str) -> str:
        """Return the command that runs one item again with the same inputs."""
        return f"pytest '{node_id}' --fib-solutions=... --fib-seed={self.options.seed}"

    @cached_property
    def _traces(self) -> TraceWriter | None:
        if self.options.traces is None:
            return None
        from pytest_flashinfer.data.model import Environment
        from pytest_flashinfer.report.traces import TraceWriter

        libs = {name: _version(name) for name in ("torch", "triton", "pytest-flashinfer")}
        return TraceWriter(self.options.traces, Environment(self.device.name, libs))

    def trace(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Write the trace line of a finished item, where one is wanted and the item is of a solution and a workload."""
        params = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
        if self._traces is None or not params or not {"solution", "workload"} <= params.keys():
            return
        path = item.path
        definition = self.dataset.load(path).value
        workload = next((each for each in self.listed(path) if each.uuid == params["workload"]), None)
        if definition is None or workload is None:
            return
        log = report.longreprtext + "".join(f"\n{text}" for _, text in report.sections)
        timed = getattr(item, "originalname", "") == "test_speed"
        name = self.solutions[params["solution"]].solution.name
        self._traces.add(definition, workload, name, dict(report.user_properties), log=log, timed=timed)

    def header(self) -> list[str]:
        """Return what the run stands on, and what replays it."""
        versions = ", ".join(f"{name} {_version(name)}" for name in ("torch", "triton"))
        card = self.device.name + (f", driver {self.device.driver}" if self.device.driver else "")
        return [
            f"flashinfer: {self.device} ({card}), {versions}",
            f"flashinfer: scope {self.scope}, --fib-seed={self.options.seed}",
        ]

    def close(self) -> None:
        """End every process that this run started."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def _worker_number() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
