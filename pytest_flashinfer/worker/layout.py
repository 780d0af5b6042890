"""Where each tensor lies in the arena: aligned slots with a guard zone before and after every one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALIGNMENT = 256  # bytes, as cudaMalloc and torch's allocator give
GUARD = 4096  # bytes between two slots, at the least


@dataclass(frozen=True)
class Output:
    """What a call must produce: `shape`, and `strides` in elements where the destination is not contiguous.

    `scalar` says that a Python number, or a 0-d tensor on any device, will do. `also` are dtypes that hold the same
    bits (packed ones). `inplace` names the input whose memory a returned result may be.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...] | None = None
    optional: bool = False
    scalar: bool = False
    also: tuple[torch.dtype, ...] = ()
    inplace: str | None = None


@dataclass(frozen=True)
class Slot:
    """One tensor in the arena; `at`, `extent` and `room` in bytes. `room` adds half of the guard zone behind it."""

    name: str
    at: int
    extent: int
    room: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def message(self, origin: int = 0) -> dict[str, Any]:
        """Return the plain values by which memory.Memory makes the tensor in the worker.

        `origin`: where in the block the slots begin, in bytes.
        """
        plain = {"at": origin + self.at, "room": self.room, "size": list(self.size), "stride": list(self.stride)}
        return {**plain, "dtype": str(self.dtype)}

    def bytes_of(self, base: torch.Tensor) -> torch.Tensor:
        """Return the slot's whole extent in `base`, gaps between strided elements included, as uint8."""
        return base[self.at : self.at + self.extent]

    def words_of(self, base: torch.Tensor, word: torch.dtype) -> torch.Tensor:
        """Return the elements of the slot in `base` as words of an integer dtype, in the tensor's shape.

        An element that is larger than a word (complex128) adds a last axis.
        """
        if not self.extent:
            return torch.empty(self.size, dtype=word, device=base.device)
        words = self.bytes_of(base).view(word)
        each = self.dtype.itemsize // word.itemsize
        if each == 1:
            return words.as_strided(self.size, self.stride)
        return words.as_strided((*self.size, each), (*(each * step for step in self.stride), 1))

    def tensor_of(self, base: torch.Tensor) -> torch.Tensor:
        """Return the slot in `base` as a tensor of its own shape, strides and dtype; no copy."""
        if not self.extent:
            return torch.empty(self.size, dtype=self.dtype, device=base.device)
        return self.bytes_of(base).view(self.dtype).as_strided(self.size, self.stride)


@dataclass(frozen=True)
class Zone:
    """A guard zone `[start, stop)` in bytes, between the slot named `after` and the one named `before`."""

    start: int
    stop: int
    after: str
    before: str

    @property
    def middle(self) -> int:
        """Where responsibility changes from the slot in front to the slot behind."""
        return (self.start + self.stop) // 2


@dataclass(frozen=True)
class Layout:
    """Slots of one signature. Outputs have two: `live`, the destination, and `snap`, its copy at return.

    `front` is where the memory of inputs ends and that of outputs begins; `total` the size of both, in bytes.
    """

    inputs: Mapping[str, Slot]
    live: Mapping[str, Slot]
    snap: Mapping[str, Slot]
    zones: Sequence[Zone]
    front: int
    total: int


def plan(inputs: Mapping[str, torch.Tensor], outputs: Sequence[Output], shift: int = 0) -> Layout:
    """Lay out the inputs as they are strided, then the outputs, then their snapshots.

    All lie `shift` bytes further away from `front`, which stays at its address.
    """
    shapes = [(name, tuple(each.shape), tuple(each.stride()), each.dtype) for name, each in inputs.items()]
    made = [(each.name, each.shape, each.strides or contiguous(each.shape), each.dtype) for each in outputs]
    slots: list[Slot] = []
    zones: list[Zone] = []
    end, last, front, least = 0, "", 0, 0
    for group in (shapes, [*made, *made]):
        for name, size, stride, dtype in group:
            at = _align(max(end + GUARD, least))
            zones.append(Zone(end, at, last, name))
            extent = _extent(size, stride) * dtype.itemsize
            room = extent + (_align(at + extent + GUARD) - at - extent) // 2
            slots.append(Slot(name, at, extent, room, size, stride, dtype))
            end, last = at + extent, name
        if group is shapes:
            front = _align(end + GUARD // 2 + shift)
            least = front + GUARD // 2 + shift
    total = _align(max(end + GUARD, least))
    zones.append(Zone(end, total, last, ""))
    count, produced = len(shapes), len(made)
    return Layout(
        _named(slots[:count]),
        _named(slots[count : count + produced]),
        _named(slots[count + produced :]),
        zones,
        front,
        total,
    )


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _named(slots: Sequence[Slot]) -> dict[str, Slot]:
    return {slot.name: slot for slot in slots}


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    if 0 in size:
        return 0
    return 1 + sum((count - 1) * step for count, step in zip(size, stride, strict=True))


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
