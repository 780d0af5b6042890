"""Canonical workload, trace and evaluation documents to records."""

from __future__ import annotations

import sys
from typing import Any, get_args

from pytest_flashinfer.data import model
from pytest_flashinfer.data.reader import Malformed, Reader

INPUT_KINDS: tuple[str, ...] = get_args(model.InputKind)
_PLAIN = {kind: model.InputSpec(kind) for kind in get_args(model.InputKind)}  # a data set has thousands of each
_NOTHING: model.Extra = {}


def trace(raw: Any) -> model.Trace:
    """Build a trace. Raises Malformed."""
    read = Reader(raw)
    evaluated = read.member("evaluation")
    return model.Trace(
        definition=read.need("definition", str),
        workload=workload(Reader(read.need("workload", dict), ("workload",))),
        solution=read.take("solution", str),
        evaluation=None if evaluated is None else evaluation(evaluated),
        extra=dict(read.rest),
    )


def workload(read: Reader) -> model.Workload:
    """Build a workload. Raises Malformed."""
    axes: dict[str, Any] = read.need("axes", dict)
    for name, size in axes.items():
        if type(size) is not int:
            raise Malformed((*read.where, "axes", name), f"size {size!r} is not a whole number")
    toleration = read.member("tolerance")
    return model.Workload(
        uuid=read.need("uuid", str),
        axes={sys.intern(name): size for name, size in axes.items()},
        inputs={name: input_spec(spec) for name, spec in read.members("inputs").items()},
        tolerance=None if toleration is None else tolerance(toleration),
        extra=dict(read.rest) if read.rest else _NOTHING,
    )


def input_spec(read: Reader) -> model.InputSpec:
    """Build the source of one input. Raises Malformed."""
    kind: Any = read.choice("type", INPUT_KINDS)
    value = path = key = None
    if kind == "scalar":
        if "value" not in read.rest:
            raise read.fail("value", "missing key 'value'")
        value = read.rest.pop("value")
        if not isinstance(value, (int, float, str, type(None))):
            raise read.fail("value", "a scalar is a number, true, false or a string")
    elif kind == "safetensors":
        path, key = read.need("path", str), read.need("tensor_key", str)
    elif not read.rest:
        return _PLAIN[kind]
    return model.InputSpec(kind, value, path, key, read.rest)


def tolerance(read: Reader) -> model.WorkloadTolerance:
    """Build the tolerance of one workload. Raises Malformed."""
    return model.WorkloadTolerance(
        max_atol=read.number("max_atol"),
        max_rtol=read.number("max_rtol"),
        required_matched_ratio=read.number("required_matched_ratio"),
        max_error_cap=read.number("max_error_cap"),
        allow_negative_inf=read.take("allow_negative_inf", bool),
        extra=read.rest,
    )


def evaluation(read: Reader) -> model.Evaluation:
    """Build an evaluation. Raises Malformed."""
    where = Reader(read.need("environment", dict), (*read.where, "environment"))
    correct, speed = read.member("correctness"), read.member("performance")
    status: Any = read.choice("status", model.STATUSES)
    return model.Evaluation(
        status=status,
        environment=model.Environment(where.need("hardware", str), where.take("libs", dict) or {}, where.rest),
        timestamp=read.need("timestamp", str),
        log=read.take("log", str) or "",
        correctness=None if correct is None else _correctness(correct),
        performance=None if speed is None else _performance(speed),
        extra=read.rest,
    )


def _correctness(read: Reader) -> model.Correctness:
    relative, absolute = read.number("max_relative_error"), read.number("max_absolute_error")
    return model.Correctness(relative or 0.0, absolute or 0.0, read.rest)


def _performance(read: Reader) -> model.Performance:
    latency, reference = read.number("latency_ms"), read.number("reference_latency_ms")
    return model.Performance(latency or 0.0, reference or 0.0, read.number("speedup_factor") or 0.0, read.rest)
