"""What a request to the oracle states, and the reply to it; see handler.py for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth
from pytest_flashinfer.worker.call_request import argument_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.worker.call_request import Slots

DRAWN = ("probabilities", "support", "ids")  # in rows of which several elements may be drawn
PARTS = ("native", "wide", "allowance", "undecided", "held", "reach", *DRAWN)


def question(request: Mapping[str, Any], memory: Slots) -> tuple[dict[str, Any], dict[str, OutputSpec], dict[str, Any]]:
    """Return the inputs, the outputs and the options of `evaluate` that a request states."""
    inputs = inputs_of(request, memory)
    specs = {each["name"]: _spec(each) for each in request["outputs"]}
    options = {
        key: request[key]
        for key in ("seed", "operands", "budget", "sampling", "native", "bounded", "mutated", "closely")
        if request.get(key) is not None
    }
    return inputs, specs, options


def inputs_of(request: Mapping[str, Any], memory: Slots) -> dict[str, Any]:
    """Return the inputs in the arena by name."""
    return {each["name"]: argument_of(each, memory) for each in request["inputs"]}


def _spec(each: Mapping[str, Any]) -> OutputSpec:
    shape = each["shape"]
    return OutputSpec(each["dtype"], None if shape is None else tuple(shape), bool(each["optional"]), each["param"])


def facts(truth: Truth) -> dict[str, Any]:
    """Return what a reply says of a truth beside its outputs."""
    return {
        "how": truth.how,
        "nan_inputs": truth.nan_inputs,
        "notes": list(truth.notes),
        "seconds": dict(truth.seconds),
    }


def write(output: OutputTruth, request: Mapping[str, Any], memory: Slots) -> dict[str, Any]:
    """Copy one output's tensors into their slots and say which were filled."""
    filled = {}
    for part in PARTS:
        value, slot = getattr(output, part), request.get(part)
        filled[part] = False
        if value is None or slot is None:
            continue
        there = memory.tensor(slot)
        if part in DRAWN:
            there = there[: len(there) // output.times]
        if value.shape == there.shape:
            filled[part] = True
            there.copy_(value)
    facts = {
        "how": output.how,
        "exact": output.exact,
        "widened": output.widened,
        "replaced": output.replaced,
        "disputed": output.disputed,
        "times": output.times,
        "distinct": output.distinct,
        "seeded": output.seeded,
        "notes": list(output.notes),
    }
    return {"name": output.name, "present": output.native is not None, **filled, **facts}
