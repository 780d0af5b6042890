"""Where each tensor lies in the arena: aligned slots with a guard zone before and after every one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ALIGNMENT = 256  # bytes, as cudaMalloc and torch's allocator give
GUARD = 4096  # bytes between two slots, at the least


@dataclass(frozen=True)
class Output:
    """What a call must produce: `shape`, and `strides` in elements where the destination is not contiguous.

    `scalar` says that a Python number, or a 0-d tensor on any device, will do. `also` are dtypes that hold the same
    bits (packed ones). `inplace` names the input that a call writes the values into: in destination style there is
    no other destination, and a returned result may be that input.
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

    `inplace` are the outputs whose values may lie in an input: that input's slot, and one for its copy at return.
    `front` is where the memory of inputs ends and that of outputs begins; `total` the size of both, in bytes.
    """

    inputs: Mapping[str, Slot]
    live: Mapping[str, Slot]
    snap: Mapping[str, Slot]
    inplace: Mapping[str, tuple[Slot, Slot]]
    zones: Sequence[Zone]
    front: int
    total: int


def plan(
    inputs: Mapping[str, torch.Tensor], outputs: Sequence[Output], shift: int = 0, *, destination: bool = False
) -> Layout:
    """Lay out the inputs as they are strided, then the outputs, their snapshots and those of inputs written into.

    In `destination` style an output that is written into an input has no place but that. All lie `shift` bytes further
    away from `front`, which stays at its address, and by the remainder of that off the alignment.
    """
    shapes = [(name, *_shape(each)) for name, each in inputs.items()]
    own = [each for each in outputs if not (destination and each.inplace)]
    made = [(each.name, each.shape, each.strides or contiguous(each.shape), each.dtype) for each in own]
    written = {each.name: each.inplace for each in outputs if each.inplace is not None and each.inplace in inputs}
    kept = [(name, *_shape(inputs[param])) for name, param in written.items()]
    slots: list[Slot] = []
    zones: list[Zone] = []
    end, last, front, least = 0, "", 0, 0
    for group in (shapes, [*made, *made, *kept]):
        for name, size, stride, dtype in group:
            at = _align(max(end + GUARD, least)) + shift % ALIGNMENT
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
    placed = iter(slots)
    given, live, snap, copies = (_named(itertools.islice(placed, len(part))) for part in (shapes, made, made, kept))
    inplace = {name: (given[param], copies[name]) for name, param in written.items()}
    return Layout(given, live, snap, inplace, zones, front, total)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _shape(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def _named(slots: Iterable[Slot]) -> dict[str, Slot]:
    return {slot.name: slot for slot in slots}


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    if 0 in size:
        return 0
    return 1 + sum((count - 1) * step for count, step in zip(size, stride, strict=True))


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
