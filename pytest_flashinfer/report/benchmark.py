"""Benchmark results: one object per solution and definition, in the form that kernel leaderboards exchange."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.jsontext import read_json_lines
from pytest_flashinfer.data.sniff import kind_of
from pytest_flashinfer.data.write import to_line
from pytest_flashinfer.report.excerpt import excerpt
from pytest_flashinfer.report.results import UNKNOWN, mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.unreadable import Unreadable
    from pytest_flashinfer.report.results import Result

MESSAGE = (10_000, 10_000)  # characters of what a compiler says that are kept, of its beginning and of its end
FAILURES = 8  # of one solution, in a line
FAILURE_CHARACTERS = (2_300, 1_600)  # of the text of each, of its beginning and of its end, where case and replay are


def documents(
    results: Iterable[Result], device: str, more: Mapping[tuple[str, str], Mapping[str, str]] | None = None
) -> list[dict[str, Any]]:
    """Return the records of all solutions that could be read, in the order of definitions and solutions.

    `time` is in milliseconds, the geometric mean over the workloads; `speedup` is that of the reference's over it,
    `max_diff` the largest absolute error on listed workloads and in what failed, where errors were measured: values
    that are drawn may be as large as their dtype allows, with errors to match. A solution that has no time says in
    `status` why; one that was built has in `failures` the text of the first failure of each check and status.
    `more` are further keys, such as the `file`, by definition and solution.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.check != "test_schema":
            groups.setdefault((result.definition, result.solution), []).append(result)
    known = more or {}
    return [{**_document(group, device), **known.get(key, {})} for key, group in sorted(groups.items())]


def _document(group: Sequence[Result], device: str) -> dict[str, Any]:
    first = group[0]
    head = {
        "device": {"name": device},
        "kernel_id": first.definition,
        "source": first.author,
        "solution": first.solution,
    }
    group = [result for result in group if result.outcome != "skipped"]
    if not group:
        return {**head, "compiled": False, "status": "SKIPPED", "reason": first.message}
    failed = [result for result in group if result.outcome == "failed"]
    broken = next((result for result in failed if not result.built), None)
    if broken is not None and broken.status == "INVALID_REFERENCE":  # nobody came to build it
        return {**head, "compiled": False, "status": broken.status, "reason": broken.message}
    if broken is not None:
        why = excerpt(broken.details, *MESSAGE) or str(broken.status)
        return {**head, "compiled": False, "status": broken.status or "FAILED", "compile_error": why}
    told = (result.max_abs for result in group if result.workload or result.outcome == "failed")
    errors = [error for error in told if error is not None]
    different = {"max_diff": max(errors)} if errors else {}
    if failed:
        status = failed[0].status or "FAILED"
        return {**head, "compiled": True, "status": status, **different, "failures": _failures(failed)}
    timed = [result for result in group if result.latency is not None and result.speedup is not None]
    if not timed:
        return {**head, "compiled": True, "status": "NOT_TIMED", **different}
    return {
        **head,
        "compiled": True,
        "time": 1e3 * mean(result.latency for result in timed),
        "time_unit": "ms",
        "speedup": mean(result.speedup for result in timed),
        **different,
        "workloads": len(timed),
    }


def _failures(failed: Sequence[Result]) -> list[dict[str, Any]]:
    """Return what an author should read: of a kernel that is wrong everywhere, each way in which it is."""
    first: dict[tuple[str, str | None], Result] = {}
    for result in failed:
        if result.details or result.message:
            first.setdefault((result.check, result.status), result)
    return [
        {
            "check": result.check,
            "workload": result.workload,
            "status": result.status or "FAILED",
            "text": excerpt(result.details, *FAILURE_CHARACTERS) or result.message,
        }
        for result in list(first.values())[:FAILURES]
    ]


def of_unreadable(
    files: Iterable[Unreadable], device: str, shown: Callable[[object], str] = str
) -> list[dict[str, Any]]:
    """Return the records of solution files that nobody can read: what was tried is told from what never came.

    `shown` writes paths, and texts with paths in them.
    """
    return [
        {
            "device": {"name": device},
            "kernel_id": each.definition or UNKNOWN,
            "source": UNKNOWN,
            "solution": each.name,
            "compiled": False,
            "status": "COMPILE_ERROR",
            "compile_error": "\n".join(map(shown, each.faults))[: sum(MESSAGE)],
            "file": shown(each.path),
        }
        for each in sorted(files, key=lambda each: (each.definition or UNKNOWN, each.name, each.path))
    ]


def is_results(path: Path) -> bool:
    """Say whether a file begins with a benchmark result."""
    first = next(read_json_lines(path), None)
    return first is not None and kind_of(first.value) == "result"


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write one object a line, all or nothing: a reader never sees half a file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text("".join(map(to_line, lines)), encoding="utf-8", errors="replace")
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
