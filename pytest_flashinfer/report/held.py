"""Reading traces back: what an earlier run has found for the very same code, card and versions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.load import load_traces
from pytest_flashinfer.report.traces import DIGESTS, VERDICT, digests

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Environment, Evaluation, Solution, Trace, Workload


@dataclass(frozen=True)
class Held:
    """One evaluation that need not be made again, and where it stands."""

    path: Path
    line: int
    evaluation: Evaluation

    @property
    def status(self) -> str:
        """The verdict in this package's own words."""
        return str(self.evaluation.extra.get(VERDICT, self.evaluation.status))

    @property
    def reason(self) -> str:
        """Why an item is skipped, in one line."""
        return f"{self.path}:{self.line} holds {self.status} for the same solution, definition, card and versions"

    def facts(self, *, timed: bool) -> dict[str, Any]:
        """Return what the items of that run had as properties; latencies in seconds where `timed`."""
        facts: dict[str, Any] = {"status": self.status}
        correct, speed = self.evaluation.correctness, self.evaluation.performance
        if correct is not None:
            errors = {"max_rel": correct.max_relative_error, "max_abs": correct.max_absolute_error}
            facts |= {name: value for name, value in errors.items() if math.isfinite(value)}
        if timed and speed is not None:
            facts["latency_s"] = speed.latency_ms / 1e3
            if speed.reference_latency_ms:
                facts |= {"reference_s": speed.reference_latency_ms / 1e3, "speedup": speed.speedup_factor}
            floor = speed.extra.get("roofline_ms")
            if isinstance(floor, (int, float)) and speed.latency_ms:
                facts |= {"roofline_s": floor / 1e3, "roofline_share": floor / speed.latency_ms}
        return facts


class HeldTraces:
    """The evaluations in a file of traces, by solution and workload; lines that cannot be read count for nothing."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path, self.environment = path, environment
        self._held: dict[tuple[str, str], tuple[int, Trace]] = {}
        for loaded in load_traces(path) if path.is_file() else ():
            trace = loaded.value
            if trace is not None and trace.solution is not None and trace.evaluation is not None:
                self._held[trace.solution, trace.workload.uuid] = (loaded.line, trace)

    def find(self, definition: Definition, workload: Workload, solution: Solution) -> Held | None:
        """Return the last evaluation of the same content under the same conditions, or `None`."""
        line, trace = self._held.get((solution.name, workload.uuid), (0, None))
        if trace is None or trace.evaluation is None or trace.workload != workload:
            return None
        if trace.definition != definition.name or trace.extra.get(DIGESTS) != digests(definition, solution):
            return None
        made: Mapping[str, str] = trace.evaluation.environment.libs
        same = trace.evaluation.environment.hardware == self.environment.hardware and made == self.environment.libs
        return Held(self.path, line, trace.evaluation) if same else None
