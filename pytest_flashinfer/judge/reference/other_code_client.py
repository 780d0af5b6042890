"""The judge's end of the other code of a definition, which the reference's worker runs: what comes back is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.judge.oracle.packing import Packing
from pytest_flashinfer.worker.log import printable
from pytest_flashinfer.worker.memory import DTYPES
from pytest_flashinfer.worker.replies import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.judge.oracle.client import Oracle

MOST_BYTES = 1 << 36  # of all inputs that a definition may make for itself
_PLAIN = (bool, int, float, str, type(None))


def describe(definition: Definition) -> dict[str, Any] | None:
    """Return what the worker needs to run the other code of a definition, or `None` where there is none."""
    if not (definition.init or definition.check or definition.custom_inputs):
        return None
    return {
        "name": definition.name,
        "inputs": [[name, spec.shape, spec.dtype, spec.param] for name, spec in definition.inputs.items()],
        "reference": definition.reference,
        "init": definition.init,
        "check": definition.check,
        "custom_inputs": definition.custom_inputs,
    }


def make(oracle: Oracle, request: Mapping[str, Any], timeout: float) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return inputs by name, made in the worker, and the names that it made for no input.

    `request` as in other_code.py. Raises InputsError for a reply that describes no inputs, and the worker's errors.
    """
    reply = oracle.worker.call({**request, "do": "make"}, timeout)
    made: dict[str, Any] = {}
    packing = Packing()
    for each in as_list(reply.get("values")):
        name = str(each["name"])
        if "size" in each:
            size, dtype = _sizes(name, each["size"]), DTYPES.get(str(each["dtype"]))
            if dtype is None or str(dtype).startswith("torch.q"):  # quantised tensors have no plain storage
                raise InputsError(f"input {name} is made with dtype {printable(str(each['dtype'])[:40])}")
            packing.add(name, size, dtype)
            made[name] = None
        else:
            made[name] = float.fromhex(str(each["float"])) if "float" in each else each["value"]
            if not isinstance(made[name], _PLAIN):
                raise InputsError(f"input {name} is made as no plain value")
    if packing.end > MOST_BYTES:
        raise InputsError(f"the definition's own inputs take {packing.end >> 20} MiB")
    oracle.place(packing, {})
    slots = [slot.message() | {"name": name} for name, slot in packing.slots.items()]
    oracle.worker.call({"do": "take", "slots": slots}, timeout)
    made.update({name: slot.tensor_of(oracle.arena.data).clone() for name, slot in packing.slots.items()})
    unused = tuple(printable(str(name)[:80]) for name in as_list(reply.get("unused")))
    return made, unused


def _sizes(name: str, value: object) -> tuple[int, ...]:
    sizes = as_list(value)
    if not all(type(size) is int and 0 <= size < MOST_BYTES for size in sizes):
        raise InputsError(f"input {name} is made with a shape that is none")
    return tuple(sizes)


def check(
    oracle: Oracle,
    pairs: Sequence[tuple[torch.Tensor | None, torch.Tensor | None]],
    settings: Mapping[str, Any],
    timeout: float,
) -> str | None:
    """Return why the definition's own check refuses outputs, or `None`; `pairs` are of reference and actual ones."""
    packing = Packing()
    values: dict[str, torch.Tensor] = {}
    asked: list[list[Any]] = []
    for number, pair in enumerate(pairs):
        slots: list[Any] = []
        for side, value in zip("ra", pair, strict=True):
            slots.append(None)
            if value is not None:
                values[f"{side}{number}"] = value
                slots[-1] = packing.add(f"{side}{number}", tuple(value.shape), value.dtype)
        asked.append(slots)
    oracle.place(packing, values)
    reply = oracle.worker.call({"do": "check", "pairs": asked, "settings": dict(settings)}, timeout)
    if reply.get("passed") is True:
        return None
    why = printable(str(reply.get("why") or "")[:400])
    return f"refused by the definition's own check{f': {why}' if why else ''}"
