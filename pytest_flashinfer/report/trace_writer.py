"""Trace lines: one per evaluated solution and workload, appended as soon as it is known: a killed run keeps them."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.append import locked, write
from pytest_flashinfer.data.model import (
    Correctness,
    Environment,
    Evaluation,
    Performance,
    Trace,
    as_status,
)
from pytest_flashinfer.data.write import definition_document, to_line, trace_document
from pytest_flashinfer.report.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Solution, Status, Workload

TEXT = (6_000, 6_000)  # characters of a failure's text that are kept, of its beginning and of its end
PRINTED = (3_000, 5_000)  # and of what was printed, which may be any amount
DIGESTS, VERDICT, UNBUILT = "digests", "verdict", "unbuilt"  # keys that other tools pass over
CHECKED = "checked"  # in `evaluation`: the checks that had passed when a right solution got its line
ROOFLINE = "roofline_ms"  # beside `latency_ms`: the least time that the card's bandwidth and arithmetic allow
BOUND_SHARE = "bound_share"  # beside `max_absolute_error`: the largest error over the tolerated one
OWN_STATUSES: tuple[Status, ...] = ("REWARD_HACK", "INVALID_REFERENCE")  # flashinfer-bench has no word for them


_Subject = tuple[str, str, str, str, str]  # definition, workload, author, solution, digest: several may have one name


@dataclass
class _Told:
    """What has been written of one solution on one workload, and which of its checks passed or failed when last run."""

    status: Status | None = None
    failing: set[str] = field(default_factory=set)
    passing: set[str] = field(default_factory=set)

    def has_news(self, status: Status, check: str, *, timed: bool) -> bool:
        """Whether a check that ended so makes a line: not where another has failed, which a pass does not undo."""
        if status == "PASSED":
            self.failing.discard(check)
            self.passing.add(check)
            news = timed and not self.failing
        else:
            news = not self.failing - {check}
            self.failing.add(check)
            self.passing.discard(check)
        if not news or status == self.status:
            return False
        self.status = status
        return True


@dataclass
class TraceWriter:
    """Appends to `<folder>/<op_type>/<definition>.jsonl`; several processes may append to the same files.

    A solution that is wrong on a workload gets its line when that is known, one that is right when it was timed as
    well: the format knows no right solution without a latency. An item that is run again, and ends otherwise, adds a
    line: the last one counts.
    """

    folder: Path
    environment: Environment
    _told: dict[_Subject, _Told] = field(default_factory=dict)

    def add(  # noqa: PLR0913 - what a line says
        self,
        definition: Definition,
        workload: Workload,
        solution: Solution,
        facts: Mapping[str, Any],
        *,
        text: str,
        printed: str = "",
        timed: bool,
    ) -> None:
        """Write the line of one finished item; `facts` are the properties of its report. Raises OSError.

        The log has `text`, which says what failed, and then what was `printed`; each is cut where it is long.
        """
        status = as_status(facts.get("status"))
        if status is None or status == "INVALID_REFERENCE":
            return  # it says nothing of the solution
        key = (definition.name, workload.uuid, solution.author, solution.name, solution.digest)
        told = self._told.setdefault(key, _Told())
        if not told.has_news(status, str(facts.get("fib_check")), timed=timed):
            return
        own = {VERDICT: status} if status in OWN_STATUSES else {}
        unbuilt = {UNBUILT: True} if "fib_unbuilt" in facts else {}
        checked = {CHECKED: sorted(told.passing)} if status == "PASSED" else {}
        evaluation = Evaluation(
            "RUNTIME_ERROR" if status in OWN_STATUSES else status,
            self.environment,
            datetime.now(timezone.utc).isoformat(timespec="microseconds"),
            excerpt(text, *TEXT) + excerpt(printed, *PRINTED),
            _correctness(facts) if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
            _performance(facts) if status == "PASSED" else None,
            own | unbuilt | checked,
        )
        extra = {DIGESTS: digests(definition, solution)}
        line = to_line(trace_document(Trace(definition.name, workload, solution.name, evaluation, extra)))
        append(trace_path(self.folder, definition), line.encode(errors="replace"))


def trace_path(folder: Path, definition: Definition) -> Path:
    """Return the file of a definition's traces."""
    return folder / definition.op_type / f"{definition.name}.jsonl"


def digests(definition: Definition, solution: Solution) -> dict[str, str]:
    """Return SHA-256, as hex, of what was run and of what it was judged against."""
    stated = hashlib.sha256(to_line(definition_document(definition)).encode(errors="replace")).hexdigest()
    return {"solution": solution.digest, "definition": stated}


def append(path: Path, line: bytes) -> None:
    """Append one line, on disk when this returns; half a line that a killed run left is cut off. Raises OSError."""
    with locked(path) as handle:
        _end_last_line(handle)
        write(handle, line)


def _end_last_line(handle: int) -> None:
    """End a last line that another tool wrote without a line break, and cut one that a killed writer left half."""
    size = os.fstat(handle).st_size
    if not size or os.pread(handle, 1, size - 1) == b"\n":
        return
    with os.fdopen(os.dup(handle), "rb") as file:
        file.seek(0)
        start = max((file.tell() for line in file if line.endswith(b"\n")), default=0)
    try:
        json.loads(os.pread(handle, size - start, start))
    except ValueError:
        os.ftruncate(handle, start)
    else:
        os.write(handle, b"\n")


def _correctness(facts: Mapping[str, Any]) -> Correctness:
    """Return the errors; one that is no number was not recorded and is unknown where the output is wrong."""
    unknown = 0.0 if facts["status"] == "PASSED" else math.nan
    share = {BOUND_SHARE: float(facts["bound_share"])} if "bound_share" in facts else {}
    return Correctness(float(facts.get("max_rel", unknown)), float(facts.get("max_abs", unknown)), share)


def _performance(facts: Mapping[str, Any]) -> Performance:
    latency = 1e3 * float(facts["latency_s"])
    reference = 1e3 * float(facts.get("reference_s", 0.0))
    roofline = {ROOFLINE: 1e3 * float(facts["roofline_s"])} if "roofline_s" in facts else {}
    return Performance(latency, reference, reference / latency if reference and latency > 0 else 0.0, roofline)
