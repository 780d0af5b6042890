"""A question to the oracle in plain values, and where its tensors lie in the arena."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.inputs.dtypes import IDS
from pytest_flashinfer.judge.floats import canonical, is_float
from pytest_flashinfer.judge.oracle.integers import countable
from pytest_flashinfer.judge.oracle.protocol import PARTS
from pytest_flashinfer.judge.reference.call import storage
from pytest_flashinfer.worker.layout import ALIGNMENT, Slot, contiguous

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.judge.oracle.truth import OutputSpec


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

    def argument(self, name: str, value: Any) -> dict[str, Any]:
        """Add an input, if it is a tensor, and return what the request says of it."""
        if isinstance(value, torch.Tensor):
            return {"name": name, "slot": self.add(name, tuple(value.shape), value.dtype)}
        if isinstance(value, float):
            return {"name": name, "float": value.hex()}
        return {"name": name, "value": value}

    def output(  # noqa: PLR0913 - all but two have defaults
        self,
        name: str,
        spec: OutputSpec,
        of: slice | None = None,
        *,
        ids: int = 0,
        listed: bool = False,
        parts: Sequence[str] = PARTS,
    ) -> dict[str, Any]:
        """Add those of `parts` that an output of this dtype has, and return what the request says of it.

        16-bit ones need no more than float32 for the truth. `of`: of which rows; else of all. `ids`: how many ids can
        be drawn, 0 where nothing is; `listed`: which these are may be said of each row.
        """
        size, dtype = storage(spec)
        if of is not None:
            size = (of.stop - of.start, *size[1:])
        wide = None
        if is_float(spec.dtype):
            wide = torch.float64 if canonical(spec.dtype) in ("float32", "float64") else torch.float32
        held = torch.bool if dtype in IDS else None
        reach = torch.uint8 if countable(dtype, spec.dtype) else None
        kinds = {"native": dtype, "undecided": torch.bool, "held": held, "reach": reach}
        kinds |= {"wide": wide, "allowance": wide}
        slots = {
            part: self.add(f"{name}\0{part}", size, kind) if kind is not None and part in parts else None
            for part, kind in kinds.items()
        }
        if ids and not is_float(spec.dtype):
            rows = (math.prod(size), ids)
            slots["probabilities"] = self.add(f"{name}\0probabilities", rows, torch.float32)
            slots["support"] = self.add(f"{name}\0support", rows, torch.bool)
            slots["ids"] = self.add(f"{name}\0ids", rows, torch.int64) if listed else None
        shape = None if spec.shape is None else list(spec.shape)
        said = {"name": name, "dtype": spec.dtype, "shape": shape, "optional": spec.optional, "param": spec.param}
        return {**said, **slots}


def widest(inputs: Mapping[str, Any]) -> int:
    """Return the length of the longest row of a floating matrix: the number of ids that can be drawn."""
    matrices = [x for x in inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.ndim > 1]
    return max((int(x.shape[-1]) for x in matrices), default=0)


def listed(inputs: Mapping[str, Any]) -> bool:
    """Say whether an input may list the ids that such rows are of: integers, one for each place."""
    size = widest(inputs)
    return any(isinstance(x, torch.Tensor) and x.dtype in IDS and x.shape[-1:] == (size,) for x in inputs.values())
