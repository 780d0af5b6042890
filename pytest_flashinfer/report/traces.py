"""Trace lines: one per evaluated solution and workload, appended as soon as it is known, so that a killed run keeps them."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast, get_args

from pytest_flashinfer.data.model import (
    Correctness,
    Environment,
    Evaluation,
    Performance,
    Status,
    Trace,
)
from pytest_flashinfer.data.write import to_line, trace_document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Workload

LOG_CHARACTERS = 20_000


@dataclass
class TraceWriter:
    """Appends to `<folder>/<op_type>/<definition>.jsonl`; several processes may append to the same files.

    A solution that is wrong on a workload gets its line when that is known, one that is right when it was timed as
    well: the format knows no right solution without a latency.
    """

    folder: Path
    environment: Environment
    written: set[tuple[str, str, str]] = field(default_factory=set)

    def add(
        self, definition: Definition, workload: Workload, solution: str, facts: Mapping[str, Any], *, log: str, timed: bool
    ) -> None:
        """Write the line of one finished item; `facts` are the properties of its report."""
        status = facts.get("status")
        key = (definition.name, workload.uuid, solution)
        if status not in get_args(Status) or key in self.written or (status == "PASSED" and not timed):
            return
        self.written.add(key)
        evaluation = Evaluation(
            cast("Status", status),
            self.environment,
            datetime.now(timezone.utc).isoformat(timespec="microseconds"),
            log[-LOG_CHARACTERS:],
            _correctness(facts) if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
            _performance(facts) if status == "PASSED" else None,
        )
        line = to_line(trace_document(Trace(definition.name, workload, solution, evaluation)))
        self._append(self.folder / definition.op_type / f"{definition.name}.jsonl", line.encode())

    @staticmethod
    def _append(path: Path, line: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)


def _correctness(facts: Mapping[str, Any]) -> Correctness:
    return Correctness(float(facts.get("max_rel", 0.0)), float(facts.get("max_abs", 0.0)))


def _performance(facts: Mapping[str, Any]) -> Performance:
    latency = 1e3 * float(facts["latency_s"])
    reference = 1e3 * float(facts.get("reference_s", 0.0))
    return Performance(latency, reference, reference / latency if reference else 0.0)
