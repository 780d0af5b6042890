"""Reading traces back: what an earlier run has found for the very same code, card and versions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.faults import Fault
from pytest_flashinfer.data.traces import stream_traces
from pytest_flashinfer.report.trace_writer import BOUND_SHARE, CHECKED, DIGESTS, ROOFLINE, UNBUILT, VERDICT, digests

if TYPE_CHECKING:
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

    def speaks_of(self, check: str) -> bool:
        """Whether the outcome of a check follows: the times of a solution may have been all that was asked for."""
        checked = self.evaluation.extra.get(CHECKED)
        return self.status != "PASSED" or (isinstance(checked, list) and check in checked)

    @property
    def log(self) -> str:
        """What that run had to say of it: the text of its failure, and what was printed."""
        return self.evaluation.log

    @property
    def reason(self) -> str:
        """Why an item is skipped, in one line."""
        return f"{self.path}:{self.line} holds {self.status} for the same solution, definition, card and versions"

    def facts(self, *, timed: bool) -> dict[str, Any]:
        """Return what the items of that run had as properties; latencies in seconds where `timed`."""
        facts: dict[str, Any] = {"status": self.status}
        if self.evaluation.extra.get(UNBUILT):
            facts["fib_unbuilt"] = self.status
        correct, speed = self.evaluation.correctness, self.evaluation.performance
        if correct is not None:
            errors = {"max_rel": correct.max_relative_error, "max_abs": correct.max_absolute_error}
            facts |= {name: value for name, value in errors.items() if math.isfinite(value)}
            share = correct.extra.get(BOUND_SHARE)
            if isinstance(share, (int, float)) and math.isfinite(share):
                facts["bound_share"] = share
        if timed and speed is not None:
            facts["latency_s"] = speed.latency_ms / 1e3
            if speed.reference_latency_ms:
                facts |= {"reference_s": speed.reference_latency_ms / 1e3, "speedup": speed.speedup_factor}
            floor = speed.extra.get(ROOFLINE)
            if isinstance(floor, (int, float)) and speed.latency_ms:
                facts |= {"roofline_s": floor / 1e3, "roofline_share": floor / speed.latency_ms}
        return facts


class HeldTraces:
    """The evaluations in a file of traces, by solution and workload; lines that cannot be read count for nothing."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path, self.environment = path, environment
        self._held: dict[tuple[str, str], list[tuple[int, Trace]]] = {}
        for line, trace in stream_traces(path) if path.is_file() else ():
            if not isinstance(trace, Fault) and trace.solution is not None and trace.evaluation is not None:
                self._held.setdefault((trace.solution, trace.workload.uuid), []).append((line, trace))

    def find(self, definition: Definition, workload: Workload, solution: Solution, check: str) -> Held | None:
        """Return the last evaluation of the same content under the same conditions, or `None`.

        What is right in the eyes of other checks than `check` says nothing of it; what is wrong is wrong for all.
        """
        wanted = digests(definition, solution)
        for line, trace in reversed(self._held.get((solution.name, workload.uuid), ())):
            same = trace.definition == definition.name and trace.workload == workload
            if same and trace.extra.get(DIGESTS) == wanted and trace.evaluation is not None and self._here(trace):
                held = Held(self.path, line, trace.evaluation)
                if held.speaks_of(check):
                    return held
        return None

    def _here(self, trace: Trace) -> bool:
        """Whether a trace was made on this card with these versions; other runs may have added theirs since."""
        made = None if trace.evaluation is None else trace.evaluation.environment
        return made is not None and (made.hardware, made.libs) == (self.environment.hardware, self.environment.libs)
