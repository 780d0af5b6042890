"""The judge's end of the oracle: lays inputs into an arena, asks the reference's worker, reads the truth back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.worker.layout import ALIGNMENT, Slot, contiguous
from pytest_flashinfer.worker.memory import Arena

from .floats import canonical, is_float
from .reference import storage
from .truth import OutputSpec, OutputTruth, Truth

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.worker.client import Worker

HANDLER = "pytest_flashinfer.judge.oracle"
_PARTS = ("native", "wide", "allowance", "undecided", "probabilities", "support")


class Oracle:
    """Asks one worker (handler `HANDLER`) about one reference, again and again on the same storage.

    Methods may raise the errors of the worker floor; `CallFailed` of kind "reference" means that the reference itself
    failed.
    """

    def __init__(self, worker: Worker, device: str) -> None:
        self.worker = worker
        self.device = device
        self.arena = Arena(device)

    def build(  # noqa: PLR0913 - all but two have defaults
        self,
        reference: str,
        folder: Path,
        *,
        entry: str = "run",
        style: str = "return",
        hooks: Mapping[str, Any] | None = None,
        timeout: float = 120,
    ) -> None:
        """Load the reference's source in the worker; `hooks` as `errands.describe` makes them."""
        request = {"reference": reference, "entry": entry, "style": style, "hooks": hooks}
        self.worker.build(request, folder, timeout)

    def ask(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, OutputSpec],
        *,
        timeout: float = 120,
        **options: Any,
    ) -> Truth:
        """Return the truth for these inputs; `options` as in `evaluate`."""
        packing = Packing()
        arguments = [_argument(name, value, packing) for name, value in inputs.items()]
        ids = _widest(inputs) if options.get("sampling") else 0
        wanted = [_request(name, spec, packing, ids) for name, spec in outputs.items()]
        self.place(packing, inputs)
        reply = self.worker.call({"inputs": arguments, "outputs": wanted, **options}, timeout)
        facts = {str(each["name"]): each for each in reply["outputs"]}
        truths = {name: self._read(name, spec, facts[name], packing) for name, spec in outputs.items()}
        notes = tuple(map(str, reply["notes"]))
        return Truth(truths, str(reply["how"]), bool(reply["nan_inputs"]), notes, dict(reply["seconds"]))

    def shapes(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, OutputSpec], *, seed: int, timeout: float = 120
    ) -> list[Any]:
        """Return what the reference says of each output in order: `{"size", "dtype"}`, untrusted, or `None`."""
        packing = Packing()
        arguments = [_argument(name, value, packing) for name, value in inputs.items()]
        wanted = [{"name": name, "optional": spec.optional, "param": spec.param} for name, spec in outputs.items()]
        self.place(packing, inputs)
        request = {"do": "shapes", "inputs": arguments, "outputs": wanted, "seed": seed}
        return list(self.worker.call(request, timeout)["outputs"])

    def place(self, packing: Packing, values: Mapping[str, Any]) -> None:
        """Copy tensors into the slots of their names, in an arena that is large enough for all slots."""
        self.worker.fit(self.arena, packing.end)
        for name, slot in packing.slots.items():
            if name in values:
                slot.tensor_of(self.arena.data).copy_(values[name])
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Give the arena back. The worker is closed by its owner."""
        self.arena.close()

    def _read(self, name: str, spec: OutputSpec, facts: Mapping[str, Any], packing: Packing) -> OutputTruth:
        parts: dict[str, torch.Tensor | None] = {}
        for part in _PARTS:
            slot = packing.slots.get(f"{name}\0{part}")
            held = slot.tensor_of(self.arena.data) if slot is not None and facts[part] else None
            parts[part] = None if held is None else held.clone()  # the arena is overwritten by the next question
        return OutputTruth(
            name,
            spec.dtype,
            parts["native"],
            parts["wide"],
            parts["allowance"],
            parts["undecided"],
            how=str(facts["how"]),
            exact=bool(facts["exact"]),
            widened=float(facts["widened"]),
            disputed=int(facts["disputed"]),
            probabilities=parts["probabilities"],
            support=parts["support"],
            notes=tuple(map(str, facts["notes"])),
        )


class Packing:
    """Slots one behind the other, without guard zones: the reference is trusted with its own memory."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.end = 0

    def add(self, key: str, size: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
        """Add a contiguous slot and return its message."""
        elements = 1
        for length in size:
            elements *= length
        extent = elements * dtype.itemsize
        slot = Slot(key, self.end, extent, extent, size, contiguous(size), dtype)
        self.slots[key] = slot
        self.end += -(-max(extent, 1) // ALIGNMENT) * ALIGNMENT
        return slot.message()


def _argument(name: str, value: Any, packing: Packing) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        return {"name": name, "slot": packing.add(name, tuple(value.shape), value.dtype)}
    if isinstance(value, float):
        return {"name": name, "float": value.hex()}
    return {"name": name, "value": value}


def _widest(inputs: Mapping[str, Any]) -> int:
    """Return the length of the longest row of a floating matrix: the number of ids that can be drawn."""
    matrices = [x for x in inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.ndim > 1]
    return max((int(x.shape[-1]) for x in matrices), default=0)


def _request(name: str, spec: OutputSpec, packing: Packing, ids: int) -> dict[str, Any]:
    """Ask for the parts that an output of this dtype has; 16-bit outputs need no more than float32 for the truth.

    `ids`: how many ids can be drawn, 0 where nothing is drawn.
    """
    size, dtype = storage(spec)
    parts: dict[str, torch.dtype | None] = {"native": dtype, "undecided": torch.bool, "wide": None, "allowance": None}
    if is_float(spec.dtype):
        parts["wide"] = torch.float64 if canonical(spec.dtype) in ("float32", "float64") else torch.float32
        parts["allowance"] = parts["wide"]
    slots = {part: None if kind is None else packing.add(f"{name}\0{part}", size, kind) for part, kind in parts.items()}
    if ids and not is_float(spec.dtype):
        rows = (math.prod(size), ids)
        slots["probabilities"] = packing.add(f"{name}\0probabilities", rows, torch.float32)
        slots["support"] = packing.add(f"{name}\0support", rows, torch.bool)
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": name, "dtype": spec.dtype, "shape": shape, "optional": spec.optional, "param": spec.param, **slots}
