"""What a worker is asked to call: arguments as plain values, and where in the arena tensors lie.

The judge writes it, and a worker reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.worker.layout import Layout, Output

Value = torch.Tensor | int | float | bool | str | None


class Slots(Protocol):
    """The worker's end of the arena."""

    def tensor(self, slot: Mapping[str, Any]) -> torch.Tensor:
        """Make a tensor over a slot."""


def call_request(
    layout: Layout, origin: int, inputs: Mapping[str, Value], outputs: Sequence[Output], timed: str | None
) -> dict[str, Any]:
    """Return the request for one call on tensors that are laid out from byte `origin` of the arena on."""
    arguments = [
        {"name": name, "slot": layout.inputs[name].message(origin)} if name in layout.inputs else _plain(name, value)
        for name, value in inputs.items()
    ]
    results = [
        {
            "name": output.name,
            "live": layout.live[output.name].message(origin),
            "snap": layout.snap[output.name].message(origin),
            "bytes": layout.live[output.name].extent,
            "scalar": output.scalar,
            "optional": output.optional,
            "also": [str(dtype) for dtype in output.also],
            "inplace": output.inplace,
        }
        for output in outputs
        if output.name in layout.live
    ]
    written = [
        {"name": name, "live": place.message(origin), "snap": copy.message(origin), "bytes": place.extent}
        for name, (place, copy) in layout.inplace.items()
    ]
    return {"do": "call", "inputs": arguments, "outputs": results, "written": written, "timed": timed}


def _plain(name: str, value: Value) -> dict[str, Any]:
    """Describe an argument that is no tensor; floats go by their exact text, since JSON has no infinity."""
    if isinstance(value, float):
        return {"name": name, "float": value.hex()}
    return {"name": name, "value": value}


def argument_of(spec: Mapping[str, Any], memory: Slots) -> Any:
    """Return what an argument of a request stands for; a tensor lies in the arena."""
    if "slot" in spec:
        return memory.tensor(spec["slot"])
    return float.fromhex(spec["float"]) if "float" in spec else spec["value"]
