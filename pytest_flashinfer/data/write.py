"""Records to canonical documents, and documents to text.

What is written reads back as an equal record, but for numbers that JSON does not have: see `beyond_json`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.dialects.entry import wrapper
from pytest_flashinfer.data.solutions import ANY_HARDWARE
from pytest_flashinfer.data.source import BrokenSource, bound_names, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.data import model
    from pytest_flashinfer.data.faults import JsonPath

Document = dict[str, Any]


def to_text(document: Document) -> str:
    """Write a document for people: indented, one key a line."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_line(document: Document) -> str:
    """Write a document as one line of a JSONL file, line break included."""
    return json.dumps(document, ensure_ascii=False) + "\n"


def _kept(document: Mapping[str, Any], extra: Mapping[str, Any]) -> Document:
    """Leave out what says nothing, and put back the keys that the model does not name."""
    return {**{key: value for key, value in document.items() if value is not None}, **extra}


def definition_document(definition: model.Definition) -> Document:
    """Write a definition in the canonical form.

    A reference whose entry is not `run` gets a `run` that calls it, for tools that know no other name; the key
    `entry` lets this package take it off again.
    """
    plain = definition.entry == "run"
    document = _kept(
        {
            "name": definition.name,
            "op_type": definition.op_type,
            "description": definition.description,
            "tags": list(definition.tags) or None,
            "axes": {name: axis_document(axis) for name, axis in definition.axes.items()},
            "inputs": {name: tensor_document(tensor) for name, tensor in definition.inputs.items()},
            "outputs": {name: tensor_document(tensor) for name, tensor in definition.outputs.items()},
            "constraints": list(definition.constraints) or None,
            "reference": definition.reference if plain else _with_run(definition.reference, definition.entry),
            "entry": None if plain else definition.entry,
            "init": definition.init,
            "check": definition.check,
            "custom_inputs_entrypoint": definition.custom_inputs,
        },
        definition.extra,
    )
    if definition.reference is None:
        document["reference"] = None  # said outright: the form without a reference
    return document


def _with_run(reference: str | None, entry: str) -> str | None:
    tree = parse_python(reference) if reference is not None else None
    if reference is None or tree is None or isinstance(tree, BrokenSource) or "run" in bound_names(tree):
        return reference
    return reference + wrapper(entry)


def axis_document(axis: model.Axis) -> Document:
    """Write an axis."""
    return _kept(
        {
            "type": axis.kind,
            "value": axis.value,
            "expression": axis.expression,
            "parent": axis.parent,
            "description": axis.description,
        },
        axis.extra,
    )


def tensor_document(tensor: model.TensorSpec) -> Document:
    """Write the specification of a tensor or scalar."""
    document = _kept(
        {
            "dtype": tensor.dtype,
            "optional": tensor.optional or None,
            "description": tensor.description,
            "dim_order": None if tensor.dim_order is None else list(tensor.dim_order),
            "param": tensor.param,
        },
        tensor.extra,
    )
    return {"shape": None if tensor.shape is None else list(tensor.shape), **document}


def workload_document(workload: model.Workload) -> Document:
    """Write a workload, as it stands inside a trace line."""
    return _kept(
        {
            "uuid": workload.uuid,
            "axes": dict(workload.axes),
            "inputs": {name: input_document(spec) for name, spec in workload.inputs.items()},
            "tolerance": None if workload.tolerance is None else tolerance_document(workload.tolerance),
        },
        workload.extra,
    )


def input_document(spec: model.InputSpec) -> Document:
    """Write the source of an input."""
    document = _kept({"type": spec.kind, "path": spec.path, "tensor_key": spec.tensor_key}, spec.extra)
    if spec.kind == "scalar":
        document["value"] = spec.value
    return document


def tolerance_document(tolerance: model.WorkloadTolerance) -> Document:
    """Write the tolerance of a workload."""
    names = ("max_atol", "max_rtol", "required_matched_ratio", "max_error_cap", "allow_negative_inf")
    return _kept({name: getattr(tolerance, name) for name in names}, tolerance.extra)


def trace_document(trace: model.Trace) -> Document:
    """Write a trace; without solution and evaluation it is a workload line."""
    return {
        "definition": trace.definition,
        "workload": workload_document(trace.workload),
        "solution": trace.solution,
        "evaluation": None if trace.evaluation is None else evaluation_document(trace.evaluation),
        **trace.extra,
    }


def evaluation_document(evaluation: model.Evaluation) -> Document:
    """Write an evaluation; numbers that JSON does not have are spelled, as flashinfer-bench spells them."""
    where, correct, speed = evaluation.environment, evaluation.correctness, evaluation.performance
    return {
        "status": evaluation.status,
        "environment": {"hardware": where.hardware, "libs": dict(where.libs), **where.extra},
        "timestamp": evaluation.timestamp,
        "log": evaluation.log,
        "correctness": None
        if correct is None
        else {
            "max_relative_error": spelled(correct.max_relative_error),
            "max_absolute_error": spelled(correct.max_absolute_error),
            **correct.extra,
        },
        "performance": None
        if speed is None
        else {
            "latency_ms": speed.latency_ms,
            "reference_latency_ms": speed.reference_latency_ms,
            "speedup_factor": speed.speedup_factor,
            **speed.extra,
        },
        **evaluation.extra,
    }


def spelled(number: float) -> float | str:
    """Give a number as JSON can hold it: `NaN`, `Infinity` and `-Infinity` as strings."""
    if math.isnan(number):
        return "NaN"
    return number if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


def beyond_json(value: Any, where: JsonPath = ()) -> Iterator[tuple[JsonPath, float]]:
    """Yield the numbers of a document that JSON does not have, NaN and the infinities, with their places."""
    if isinstance(value, float) and not math.isfinite(value):
        yield where, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from beyond_json(member, (*where, key))


def solution_document(solution: model.Solution) -> Document:
    """Write a solution with its sources."""
    spec = {
        "language": solution.language,
        "target_hardware": list(solution.target_hardware) or list(ANY_HARDWARE),  # other tools want at least one
        "entry_point": f"{solution.entry_file}::{solution.entry_function}",
        "dependencies": list(solution.dependencies),
        "destination_passing_style": solution.destination_passing,
        "binding": solution.binding,
    }
    extra = dict(solution.extra)
    rest = extra.pop("spec", {})
    document = {
        "name": solution.name,
        "definition": solution.definition,
        "author": solution.author,
        "description": solution.description,
        "spec": _kept(spec, rest),
        "sources": [{"path": source.path, "content": source.content, **source.extra} for source in solution.sources],
    }
    return _kept(document, extra)
