"""The judge's end of the oracle: lays inputs into an arena, asks the reference's worker, reads the truth back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.worker.arena import Arena
from pytest_flashinfer.worker.layout import ALIGNMENT, Slot, contiguous

from .floats import canonical, is_float
from .questions import PARTS
from .reference import storage
from .truth import OutputSpec, OutputTruth, Truth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_flashinfer.worker.client import Worker

HANDLER = "pytest_flashinfer.judge.oracle"


class Oracle:
    """Asks one worker (handler `HANDLER`) about one reference, again and again on the same storage.

    Methods may raise the errors of the worker floor; `CallFailed` of kind "reference" means that the reference itself
    failed.
    """

    def __init__(self, worker: Worker, device: str) -> None:
        self.worker = worker
        self.device = device
        self.arena = Arena(device)
        self._host = Arena("cpu")  # for questions that the host answers, whatever the device

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
        host: bool = False,
        **options: Any,
    ) -> Truth:
        """Return the truth for these inputs; `options` as in `evaluate`. With `host` it is found there, and lies there.

        Then the card is not asked for anything: it turns from one process to another in a millisecond or more.
        """
        packing = Packing()
        arguments = [_argument(name, value, packing) for name, value in inputs.items()]
        ids = _widest(inputs) if options.get("sampling") else 0
        parts = PARTS if options.get("bounded", True) else ("native",)
        wanted = [_request(name, spec, packing, ids=ids, parts=parts) for name, spec in outputs.items()]
        arena = self._host if host and self.device != "cpu" else self.arena
        self._place(arena, packing, inputs)
        reply = self.worker.call({"inputs": arguments, "outputs": wanted, "host": host, **options}, timeout)
        found = self._truth(outputs, reply, packing, arena)
        arena.leave(self.worker)
        return found

    def ask_rows(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, OutputSpec],
        part: slice,
        *,
        timeout: float = 120,
        **options: Any,
    ) -> Truth | None:
        """Return the truth about some rows, lying in the arena until the next question; `None` where there is none.

        `options` as in `evaluate`, and `rows`, `case` and `last` as oracle.py says.
        """
        packing = Packing()
        arguments = [_argument(name, value, packing) for name, value in inputs.items()]
        parts = ("native",) if options.get("native") else PARTS
        wanted = [_request(name, spec, packing, part, parts=parts) for name, spec in outputs.items()]
        self.place(packing, inputs)
        request = {"do": "rows", "inputs": arguments, "outputs": wanted, "part": [part.start, part.stop], **options}
        reply = self.worker.call(request, timeout)
        return self._truth(outputs, reply, packing, self.arena, own=False) if reply["independent"] else None

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
        self._place(self.arena, packing, values)

    def close(self) -> None:
        """Give the memory back. The worker is closed by its owner."""
        self.arena.close()
        self._host.close()

    def _place(self, arena: Arena, packing: Packing, values: Mapping[str, Any]) -> None:
        self.worker.fit(arena, packing.end)
        for name, slot in packing.slots.items():
            if name in values:
                slot.tensor_of(arena.data).copy_(values[name])
        if arena.device != "cpu":
            torch.cuda.synchronize(arena.device)

    @staticmethod
    def _truth(
        outputs: Mapping[str, OutputSpec],
        reply: Mapping[str, Any],
        packing: Packing,
        arena: Arena,
        *,
        own: bool = True,
    ) -> Truth:
        """Read what a reply says was written; the arena is overwritten by the next question."""
        facts = {str(each["name"]): each for each in reply["outputs"]}
        truths = {name: _read(name, spec, facts[name], packing, arena.data) for name, spec in outputs.items()}
        if own:
            truths = {name: copied(each) for name, each in truths.items()}
        notes = tuple(map(str, reply["notes"]))
        return Truth(truths, str(reply["how"]), bool(reply["nan_inputs"]), notes, dict(reply["seconds"]))


def copied(output: OutputTruth) -> OutputTruth:
    """Return an output whose tensors are nobody else's."""
    parts: dict[str, Any] = {part: x.clone() for part in PARTS if (x := getattr(output, part)) is not None}
    return replace(output, **parts)


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


def _read(
    name: str, spec: OutputSpec, facts: Mapping[str, Any], packing: Packing, base: torch.Tensor
) -> OutputTruth:
    parts: dict[str, torch.Tensor | None] = {}
    for part in PARTS:
        slot = packing.slots.get(f"{name}\0{part}")
        parts[part] = slot.tensor_of(base) if slot is not None and facts[part] else None
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


def _request(  # noqa: PLR0913 - all but three have defaults
    name: str,
    spec: OutputSpec,
    packing: Packing,
    of: slice | None = None,
    *,
    ids: int = 0,
    parts: Sequence[str] = PARTS,
) -> dict[str, Any]:
    """Ask for those of `parts` that an output of this dtype has; 16-bit ones need no more than float32 for the truth.

    `of`: of which rows; else of all. `ids`: how many ids can be drawn, 0 where nothing is drawn.
    """
    size, dtype = storage(spec)
    if of is not None:
        size = (of.stop - of.start, *size[1:])
    kinds: dict[str, torch.dtype | None] = {"native": dtype, "undecided": torch.bool, "wide": None, "allowance": None}
    if is_float(spec.dtype):
        kinds["wide"] = torch.float64 if canonical(spec.dtype) in ("float32", "float64") else torch.float32
        kinds["allowance"] = kinds["wide"]
    slots = {
        part: packing.add(f"{name}\0{part}", size, kind) if kind is not None and part in parts else None
        for part, kind in kinds.items()
    }
    if ids and not is_float(spec.dtype):
        rows = (math.prod(size), ids)
        slots["probabilities"] = packing.add(f"{name}\0probabilities", rows, torch.float32)
        slots["support"] = packing.add(f"{name}\0support", rows, torch.bool)
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": name, "dtype": spec.dtype, "shape": shape, "optional": spec.optional, "param": spec.param, **slots}
