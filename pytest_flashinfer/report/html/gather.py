"""Rows from trace files, and what the files of definitions and solutions tell of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flashinfer.data.agent import beside
from pytest_flashinfer.data.discover import walk
from pytest_flashinfer.data.faults import Fault
from pytest_flashinfer.data.traces import stream_traces
from pytest_flashinfer.report.html.rows import PASSED, Row, Rows, Told, shortened
from pytest_flashinfer.report.trace_writer import BOUND_SHARE, ROOFLINE, VERDICT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.dataset import DataSet
    from pytest_flashinfer.data.model import Evaluation, Trace


def trace_files(paths: Iterable[Path]) -> list[Path]:
    """List the `.jsonl` files below folders, and files that are given themselves. Raises OSError for one not there."""
    found: dict[Path, None] = {}
    for path in paths:
        path.stat()
        if path.is_dir():
            below = (folder / name for folder, names in walk(path) for name in names if name.endswith(".jsonl"))
            found.update(dict.fromkeys(below))
        else:
            found[path] = None
    return list(found)


def read_rows(files: Iterable[Path]) -> tuple[Rows, list[Fault]]:
    """Return the evaluations in trace files, and the faults of lines that could not be read."""
    rows, faults = Rows(), []
    for path in files:
        op_type = path.absolute().parent.name
        for _, trace in stream_traces(path, path.stem):
            if isinstance(trace, Fault):
                faults.append(trace)
            elif trace.solution is not None and trace.evaluation is not None:
                rows.op_types.setdefault(trace.definition, op_type)
                rows.add(_row(trace, trace.evaluation, trace.solution), trace.evaluation.environment.libs)
    return rows, faults


def _row(trace: Trace, evaluation: Evaluation, solution: str) -> Row:
    status = str(evaluation.extra.get(VERDICT, evaluation.status))
    speed, correct = evaluation.performance, evaluation.correctness
    passed = status == PASSED
    latency = speedup = roofline = None
    if passed and speed is not None:
        latency, speedup = _positive(speed.latency_ms, 1e-3), _positive(speed.speedup_factor)
        roofline = _positive(speed.extra.get(ROOFLINE), 1e-3)
    return Row(
        trace.definition,
        solution,
        evaluation.environment.hardware,
        trace.workload.uuid,
        trace.workload.axes,
        status,
        latency,
        speedup,
        roofline,
        _positive(correct.extra.get(BOUND_SHARE)) if correct is not None else None,
        "" if passed else shortened(evaluation.log),
        evaluation.timestamp,
    )


def _positive(number: object, scale: float = 1.0) -> float | None:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < math.inf:
        return None
    return number * scale


def beside_traces(traces: Sequence[Path], name: str) -> list[Path]:
    """Return the folders of that name in the data sets that the traces belong to."""
    bases = dict.fromkeys(base for path in traces for base in (path.absolute(), *path.absolute().parents[:3]))
    return [base / name for base in bases if (base / name).is_dir()]


def told(dataset: DataSet, definitions: Mapping[str, object]) -> Told:
    """Return what a data set tells of these definitions; broken files and names that are taken twice tell nothing."""
    found = Told()
    for name, paths in dataset.names.items():
        value = dataset.load(paths[0]).value
        if name in definitions and len(paths) == 1 and value is not None:
            found.definitions[name] = value
    for loaded in dataset.solutions:
        solution = loaded.value
        if solution is None or solution.definition not in definitions:
            continue
        key = (solution.definition, solution.name)
        found.solutions.setdefault(key, solution)
        trace = beside(loaded.path, solution.name)
        if trace is not None:
            found.conversations.setdefault(key, str(trace))
    return found


def first_lines(faults: Sequence[Fault], shown: int = 5) -> Iterator[str]:
    """Yield what to tell of lines that could not be read: the first few, and how many more there are."""
    yield from map(str, faults[:shown])
    if len(faults) > shown:
        yield f"and {len(faults) - shown} more"
