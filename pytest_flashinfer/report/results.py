"""Outcomes of items as plain records, gathered from the properties that every report carries (also across xdist)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


UNREAD = "fib_unread"  # of a schema check: the solution files that fail it, as JSON rows of a definition and a name
UNKNOWN = "unknown"  # the author, and the definition where nothing names one, of a file that cannot be read
_EXCEPTION = re.compile(r"[\w.]+: ")
_UNPARSED = re.compile(r'^E +File "([^"\n]+)", line (\d+)', re.MULTILINE)  # as pytest shows a SyntaxError
_FRAME = re.compile(r"^(\S[^:\n]*):(\d+): ", re.MULTILINE)  # of a traceback
_OF_OTHERS = re.compile(r"^<|[/\\](?:(?:site|dist)-packages|python\d[\d.]*)[/\\]")


@dataclass(frozen=True)
class Result:
    """One finished item: `check` is the test function's name, `status` the verdict where there was one."""

    definition: str
    solution: str
    author: str
    check: str
    workload: str | None
    outcome: str
    status: str | None = None
    latency: float | None = None  # seconds
    speedup: float | None = None
    roofline: float | None = None  # share of the card's limit, 1 = at the limit
    bound_share: float | None = None  # largest |error| over tolerated error
    message: str = ""
    reference: float | None = None  # the reference's latency on the same workload, seconds
    max_abs: float | None = None  # largest absolute error over all outputs
    compared: str = ""  # the verdict against a baseline, in one line
    details: str = ""  # the whole text of a failure
    built: bool = True  # whether the solution came as far as a call
    resumed: bool = False  # known from an earlier run, and not found in this one
    gated: bool = False  # right and timed, and failed for not being fast enough

    @property
    def timed(self) -> bool:
        """Whether this run took a time."""
        return self.latency is not None and not self.resumed

    @classmethod
    def from_properties(cls, properties: Iterable[tuple[str, object]], outcome: str, text: str) -> Result | None:
        """Return the record of a report, or `None` for an item that belongs to no solution.

        An item that was skipped because its outcome is known from an earlier run has that outcome.
        """
        values: Mapping[str, Any] = dict(properties)
        if "fib_solution" not in values:
            return None
        return cls(
            definition=values["fib_definition"],
            solution=values["fib_solution"],
            author=values["fib_author"],
            check=values["fib_check"],
            workload=values.get("fib_workload"),
            outcome=values.get("fib_resumed", outcome),
            status=values.get("fib_gate") or values.get("status"),  # right, but not fast enough
            latency=_positive(values.get("latency_s")),
            speedup=_positive(values.get("speedup")),
            roofline=_positive(values.get("roofline_share")),
            bound_share=values.get("bound_share"),
            message=text.partition("\n")[0],
            reference=_positive(values.get("reference_s")),
            max_abs=values.get("max_abs"),
            compared=str(values.get("fib_compared", "")),
            details=text,
            built="fib_unbuilt" not in values,
            resumed="fib_resumed" in values,
            gated="fib_gate" in values,
        )


def wrong(results: Iterable[Result]) -> set[tuple[str, str, str]]:
    """Return definition, solution and workload wherever a check found the solution wrong, be it not too slow."""
    failed = (each for each in results if each.outcome == "failed" and not each.gated)
    return {(each.definition, each.solution, each.workload) for each in failed if each.workload is not None}


def without_wrong(results: Iterable[Result]) -> list[Result]:
    """Return results of which none has a number of a workload on which another check found the solution wrong.

    Timed calls are few, and on inputs of one kind: they may be right where others are not.
    """
    known = list(results)
    refuted = wrong(known)
    return [
        replace(each, latency=None, speedup=None, roofline=None, bound_share=None, compared="")
        if (each.definition, each.solution, each.workload) in refuted and (each.outcome == "passed" or each.gated)
        else each
        for each in known
    ]


def unread(listed: object) -> list[Result]:
    """Return the records of solution files that cannot be read, from the property `UNREAD` of a schema check."""
    said = "the file cannot be read: see test_schema"
    return [
        Result(str(name), str(file), UNKNOWN, "test_schema", None, "failed", "COMPILE_ERROR", message=said, built=False)
        for name, file in json.loads(str(listed or "[]"))
    ]


@dataclass(frozen=True)
class Broken:
    """What failed and is no solution's: a file, a reference, the collection, the run; `text` is all that it said."""

    name: str
    text: str

    @property
    def message(self) -> str:
        """The line that says why: the first, or that of the exception within what pytest shows of code.

        Of code that does not parse it says where: what pytest shows is how that came to be read.
        """
        at = _UNPARSED.search(self.text)
        return f"{at[1]}:{at[2]}: {self._error}" if at else self._error

    @property
    def place(self) -> tuple[str, int] | None:
        """The line of code, from 1, that does not parse, or in which the exception came up within somebody's files."""
        at = _UNPARSED.search(self.text)
        if at is None:
            *_, at = None, *(each for each in _FRAME.finditer(self.text) if not _OF_OTHERS.search(each[1]))
        return None if at is None else (at[1], int(at[2]))

    @property
    def _error(self) -> str:
        lines = [line for line in self.text.splitlines() if line.strip()]
        errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
        named = (line for line in errors if _EXCEPTION.match(line))
        return next(named, (errors or lines or [""])[0].strip())


@dataclass
class Standing:
    """How one solution did on one definition; what is wrong never enters a latency or a speedup."""

    solution: str
    author: str
    passed: int = 0
    total: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    speedups: list[float] = field(default_factory=list)
    rooflines: list[float] = field(default_factory=list)
    bound_share: float | None = None
    workloads: dict[str, bool] = field(default_factory=dict)  # whether no check of it found the solution wrong
    skipped: str = ""  # why, where an item was

    def add(self, result: Result) -> None:
        """Count one item."""
        if result.outcome == "skipped":
            self.skipped = self.skipped or result.message or "no reason was given"
            return
        self.total += 1
        if result.workload is not None:
            right = result.outcome != "failed" or result.gated
            self.workloads[result.workload] = right and self.workloads.get(result.workload, True)
        if result.outcome == "failed":
            self.failures[result.status or "FAILED"] += 1
            if not result.gated:
                return
        else:
            self.passed += 1
        if result.bound_share is not None:
            self.bound_share = max(self.bound_share or 0.0, result.bound_share)
        for values, value in (
            (self.latencies, result.latency),
            (self.speedups, result.speedup),
            (self.rooflines, result.roofline),
        ):
            if (known := _positive(value)) is not None:
                values.append(known)

    @property
    def latency(self) -> float | None:
        """Median over workloads, in seconds."""
        return median(self.latencies) if self.latencies else None

    @property
    def speedup(self) -> tuple[float, float, float] | None:
        """Geometric mean, smallest and largest speedup over the reference."""
        if not self.speedups:
            return None
        return mean(self.speedups), min(self.speedups), max(self.speedups)


def mean(values: Iterable[float | None]) -> float:
    """Return the geometric mean of positive numbers: ratios of such means are means of the ratios."""
    logarithms = [math.log(value) for value in values if value and 0 < value < math.inf]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else 0.0


def _positive(value: float | None) -> float | None:
    """Return a time or a ratio of times; `None` for what can be neither, from which no report shall break."""
    return value if value is not None and 0 < value < math.inf else None


def standings(results: Iterable[Result]) -> dict[str, list[Standing]]:
    """Return the solutions of every definition, best first: all right before partly wrong, then by speedup.

    Those of which nothing ran come last.
    """
    tables: dict[str, dict[str, Standing]] = {}
    for result in results:
        rows = tables.setdefault(result.definition, {})
        rows.setdefault(result.solution, Standing(result.solution, result.author)).add(result)
    return {name: sorted(rows.values(), key=_rank) for name, rows in sorted(tables.items())}


def _rank(row: Standing) -> tuple[float, float, str]:
    failed = sum(row.failures.values()) if row.total else math.inf
    return failed, -(row.speedup[0] if row.speedup else 0.0), row.solution
