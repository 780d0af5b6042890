"""What one pytest run shares: settings, catalogue, what is known of references, and the processes."""

from __future__ import annotations

import warnings
from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.build import requirements
from pytest_flashinfer.data.calling import module_source
from pytest_flashinfer.judge.oracle.mutated_inputs import MutatedInputs
from pytest_flashinfer.outputs.outcomes import Outcomes
from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.run import distribution
from pytest_flashinfer.run.progress import Progress
from pytest_flashinfer.selection.catalogue import Catalogue
from pytest_flashinfer.selection.scope import CHOSEN
from pytest_flashinfer.settings import options
from pytest_flashinfer.settings.declarations import SECONDS
from pytest_flashinfer.settings.tolerances import Tolerances
from pytest_flashinfer.timing.gates import Gates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_flashinfer.cases.cache import InputCache
    from pytest_flashinfer.cases.proof import Lack
    from pytest_flashinfer.data.model import Definition, Solution
    from pytest_flashinfer.judge.oracle.answers import Answers
    from pytest_flashinfer.run.processes import Processes
    from pytest_flashinfer.selection.keyword import Keyword
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.pool import Pool

SESSION: pytest.StashKey[FibSession] = pytest.StashKey()  # where the config of a run has it


class FibSession:
    """Everything that outlives one item; heavy parts are made when first asked for."""

    def __init__(self, config: pytest.Config, settings: options.Options, processes: Processes) -> None:
        self.config = config
        self.options = settings
        self.running: pytest.Session | None = None
        config.stash[SESSION] = self
        self.processes = processes
        self.device = processes.device
        self.card = processes.card
        self.gates = Gates(settings, self.device.name)
        self.scope = options.scope_of(settings, cuda=self.device.kind == "cuda")
        self.catalogue = Catalogue(settings, self.scope)
        self.outcomes = Outcomes(self.catalogue, config.rootpath)
        self.tolerances = Tolerances(settings, self.catalogue.definitions)  # a wrong spelling ends the run here
        self.progress = Progress(config)
        self.probed: dict[Any, Lack | None] = {}  # workload and tolerance to why they prove nothing, if they do not
        self.mutated_inputs = _MutatedInputs()
        self.lost: list[str] = []  # what made the run fail beside its items
        self._references: dict[tuple[Path, str], list[list[float]]] = {}

    @property
    def runs_items(self) -> bool:
        """Whether this process runs items itself, rather than to list them or to have others run them."""
        return distribution.runs_items(self.config)

    @property
    def lists_only(self) -> bool:
        """Whether items are shown, and none is run."""
        return distribution.lists_only(self.config)

    @cached_property
    def keyword(self) -> Keyword:
        """What `-k` says of whole definition files."""
        from pytest_flashinfer.selection.keyword import Keyword

        return Keyword(self.config)

    @cached_property
    def input_cache(self) -> InputCache:
        """Inputs that were made once for all solutions."""
        from pytest_flashinfer.cases.cache import InputCache

        return InputCache(max(1 << 28, self.card.memory // 64))

    @property
    def pool(self) -> Pool:
        """The workers of this run."""
        return self.processes.start()

    def under_test(self, key: str, definition: Definition, solution: Solution) -> UnderTest:
        """Return a solution ready to be called; skips with the reason where it cannot run here."""
        from pytest_flashinfer.testing import UnderTest
        from pytest_flashinfer.worker.kernel import Kernel

        reason = self.why_not(solution)
        if reason is not None:
            pytest.skip(f"{key}: {reason}")
        limits = {"timeout": self.options.timeout, "build_timeout": self.options.build_timeout}
        kernel = Kernel(self.processes.start_with_torch(), definition, solution, **limits)
        return UnderTest(kernel, self.progress, self.mutated_inputs[definition.name].names)

    def why_not(self, solution: Solution) -> str | None:
        """Return why a solution cannot run on this machine, or `None`."""
        device = self.device
        return requirements.cannot_run(solution, device.kind, device.name, device.capability)

    def answers(self, definition: Definition) -> Answers:
        """Return the truths of a definition's cases."""
        from pytest_flashinfer.judge.oracle.answers import Answers

        return Answers(
            self.processes.start_with_torch(),
            definition,
            timeout=self.options.reference_timeout,
            budget=max(1 << 30, self.card.whole // 16),
            keep=max(1 << 28, self.card.memory // 32),  # all truths of small workloads, for the next solution
            spare=self.card.spare,
            mutated=self.mutated_inputs[definition.name],
        )

    def reference_kernel(self, definition: Definition) -> UnderTest:
        """Return the reference as a solution, so that it is timed in the very same way."""
        from pytest_flashinfer.data.model import Solution, SourceFile
        from pytest_flashinfer.testing import UnderTest
        from pytest_flashinfer.worker.kernel import Kernel

        try:
            text, entry = module_source(definition)
        except ValueError:  # its parameters cannot be bound: the build says so, and there is no time
            text, entry = definition.reference or "", definition.entry
        source = SourceFile("reference.py", text)
        solution = Solution(
            "reference",
            definition.name,
            "reference",
            "python",
            source.path,
            entry,
            (source,),
            destination_passing=definition.reference_style == "destination",
        )
        pool, seconds = self.processes.start_with_torch(), self.options.reference_timeout
        return UnderTest(Kernel(pool, definition, solution, timeout=seconds))

    def reference_times(
        self, path: Path, uuid: str, measure: Callable[[int], list[float]], measurements: int = 1
    ) -> list[float]:
        """Return the reference's durations on a workload in seconds, of at least so many measurements of it.

        Each is made once; `measure` is told how many there are already. Empty where the reference cannot run.
        """
        known = self._references.setdefault((path, uuid), [])
        while len(known) < measurements:
            known.append(measure(len(known)))
        return [seconds for durations in known for seconds in durations]

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions of what the numbers depend on."""
        return {name: _version(name) for name in ("torch", "triton", "pytest-flashinfer")}

    def header(self) -> list[str]:
        """Return what the run stands on, and what replays it."""
        from pytest_flashinfer.worker import sandbox

        versions = ", ".join(f"{name} {self.versions[name]}" for name in ("torch", "triton"))
        card = self.device.name + (f", driver {self.device.driver}" if self.device.driver else "")
        if self.device.count > 1 and distribution.distributes(self.config):
            card += f", {self.device.count} of them visible, one for each process"
        searched = f", --fib-seconds={self.options.seconds:g}" if self.options.seconds != SECONDS else ""
        lines = [
            f"flashinfer: {self.device} ({card}), {versions}",
            f"flashinfer: scope {self.scope}, --fib-seed={self.options.seed}{searched}",
        ]
        if self.scope == "smoke":
            lines[1] += f"; at most {CHOSEN} listed workloads of each definition"
        if self.device.kind == "cpu":
            unknown = ", and --fib-policy finds out nothing" if self.options.policy != "any" else ""
            lines.append(f"flashinfer: times are wall clock and say nothing of a card{unknown}")
        if missing := sandbox.lacking():
            lines.append(f"flashinfer: this system has no {', no '.join(missing)}; see docs/threat-model.md")
        for name in self.options.unnamed:
            places = ", ".join(from_here(self.config, place) for place in getattr(self.options, name))
            lines.append(f"flashinfer: {name} found in {places}" if places else f"flashinfer: no {name} found")
        return lines

    def lose(self, what: str) -> str:
        """Return the line that says what could not be written; a run that was asked for it has not succeeded."""
        self.lost.append(what)
        if self.running is not None and self.running.exitstatus == pytest.ExitCode.OK:
            self.running.exitstatus = pytest.ExitCode.TESTS_FAILED
        return what


class _MutatedInputs(dict[str, MutatedInputs]):
    """What shows of the inputs that references write into, by definition, for its solutions as for its reference."""

    def __missing__(self, definition: str) -> MutatedInputs:
        return self.setdefault(definition, MutatedInputs(definition, _warn))


def _warn(text: str) -> None:
    warnings.warn(pytest.PytestWarning(text), stacklevel=2)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"
