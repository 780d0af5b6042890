"""Telling the kinds of documents apart, so that a file in the wrong folder is named for what it is."""

from __future__ import annotations

from typing import Any

from pytest_flashinfer.data.nearest import ALIKE, nearest

DEFINITION, SOLUTION, TRACE, WORKLOAD = "definition", "solution", "trace", "workload"
TIMINGS = "timings"  # no record of ours: what a run writes beside them
_TELLING = {
    "sources": SOLUTION, "workload": TRACE, "kernel_id": "result", "conversation": "agent", "kernels": "calls",
    "outputs": DEFINITION, "output": DEFINITION, "reference": DEFINITION, "op_type": DEFINITION,
}  # fmt: skip
_OTHERS = {"axes", "reference", "workload", "evaluation"}  # which no solution has
_MADE = {"outputs", "output", "reference", "reference_code"}
ARTICLE = {
    DEFINITION: "a definition",
    SOLUTION: "a solution",
    TRACE: "a workload or trace line",
    WORKLOAD: "a workload",
    "calls": "a kernel calling record",
    "result": "a benchmark result",
    "agent": "an agent trace",
    TIMINGS: "a file of pytest-benchmark",
}


def kind_of(value: Any) -> str | None:
    """Guess what a document is from the keys that only one kind has; `None` where nothing speaks for any."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return "agent"
    if not isinstance(value, dict):
        return None
    is_definition = "axes" in value and {"inputs", "input"} & value.keys() and _MADE & value.keys()
    told = (kind for key, kind in _TELLING.items() if key in value)
    kind = DEFINITION if is_definition else next(told, None)  # which may have any other keys: they are kept
    if kind is None and {"machine_info", "benchmarks"} <= value.keys():
        kind = TIMINGS
    if kind is not None:
        return kind
    if "spec" in value and nearest("definition", value, ALIKE):
        return SOLUTION  # whose sources are misspelt, or left out
    if "axes" in value and "inputs" in value:
        return WORKLOAD if "uuid" in value or _describes_inputs(value["inputs"]) else DEFINITION
    return None


def meant_as_solution(value: Any) -> bool:
    """Whether an object was meant as a solution, also one that lacks most of its keys."""
    kind = kind_of(value)
    if kind is not None or not isinstance(value, dict) or _OTHERS & value.keys():
        return kind == SOLUTION
    spec = value.get("spec")
    told = isinstance(spec, dict) and bool({"language", "entry_point"} & spec.keys())
    return told or isinstance(value.get("definition"), str)


def _describes_inputs(inputs: Any) -> bool:
    return isinstance(inputs, dict) and all(isinstance(spec, dict) and "type" in spec for spec in inputs.values())


def wrong_kind(value: Any, wanted: str) -> str | None:
    """Say that a document is not of the wanted kind; `None` where it may be."""
    if not isinstance(value, dict):
        return f"{ARTICLE[wanted]} is a JSON object, not {_name(value)}"
    kind = kind_of(value)
    if kind is None or kind == wanted:
        return None
    home = {SOLUTION: "solutions", TRACE: "workloads", WORKLOAD: "workloads", DEFINITION: "definitions"}.get(kind)
    hint = f": move it under the {home} folder" if home else ""
    return f"this is {ARTICLE[kind]}, not {ARTICLE[wanted]}{hint}"


def _name(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
