"""What the judge knows of the arena: the bytes that must still be there after a call, and where they are not.

Small arenas have a full image on the judge's side: one copy fills them and one comparison checks them. Large ones
have images of their guard zones only; their inputs are compared by a keyed digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import poison
from pytest_flashinfer.worker.digest import Digest

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.worker.layout import Layout, Slot, Zone

IMAGE_LIMIT = 1 << 28  # bytes; a larger arena would be held twice
_CHUNK = 1 << 28  # bytes compared in one operation


@dataclass(frozen=True)
class Violation:
    """Something a call must not do, or did not do. `kind` is a short word, `tensor` its subject ("" for none)."""

    kind: str
    tensor: str
    message: str

    def __str__(self) -> str:
        return self.message


class Pristine:
    """Fills an arena for calls of one layout and finds what changed in it; `rng` draws guard bytes and poison."""

    def __init__(self, layout: Layout, arena: torch.Tensor, rng: random.Random) -> None:
        self.layout = layout
        self.arena = arena[: layout.total]
        self.poison = {name: poison.pattern(slot.dtype, rng) for name, slot in layout.live.items()}
        self.whole = layout.total <= IMAGE_LIMIT
        device = arena.device
        generator = torch.Generator(device=device).manual_seed(rng.getrandbits(62))
        size = layout.total if self.whole else layout.zones[0].stop
        noise = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device, generator=generator)
        self.image = noise if self.whole else self.arena
        if not self.whole:
            for zone in layout.zones:
                self.arena[zone.start : zone.stop] = noise[: zone.stop - zone.start]
            self.digest = Digest(device, rng.getrandbits(62))
            self.digests: dict[str, torch.Tensor] = {}
        self._poison(self.image)
        self._index = self._protected()
        self._expected = self.image[self._index]

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Lay the inputs into the arena, poison the outputs and restore the guard zones."""
        for name, slot in self.layout.inputs.items():
            _spread(slot.tensor_of(self.image)).copy_(_spread(inputs[name]))
        if self.whole:
            self.arena.copy_(self.image)
            return
        self._poison(self.arena)
        self.arena[self._index] = self._expected
        self.digests = {name: self.digest.of(slot.bytes_of(self.arena)) for name, slot in self.layout.inputs.items()}

    def changes(self, may_modify: frozenset[str]) -> list[torch.Tensor]:
        """Return 0-d bool tensors, true where protected bytes changed; nothing is waited for."""
        zones = (self.arena[self._index] != self._expected).any()
        if not self.whole:
            slots = [slot for name, slot in self.layout.inputs.items() if name not in may_modify]
            return [zones, *(self.digest.of(slot.bytes_of(self.arena)) != self.digests[slot.name] for slot in slots)]
        if may_modify:
            return [zones, *(self._input_changed(slot) for slot in self._kept(may_modify))]
        head = self.layout.head
        return [zones, differ(self.arena[:head], self.image[:head])]

    def explain(self, may_modify: frozenset[str]) -> list[Violation]:
        """Say which inputs and guard zones changed, and how; waits for the device."""
        found = [violation for slot in self._kept(may_modify) for violation in self._input(slot)]
        start = 0
        changed = (self.arena[self._index] != self._expected).cpu()
        for zone in self.layout.zones:
            length = zone.stop - zone.start
            found += _guard(zone, changed[start : start + length])
            start += length
        if bool(changed[start:].any()):
            found.append(Violation("guard", "", "wrote between the elements of a strided output"))
        return found

    def _kept(self, may_modify: frozenset[str]) -> list[Slot]:
        return [slot for name, slot in self.layout.inputs.items() if name not in may_modify]

    def _input_changed(self, slot: Slot) -> torch.Tensor:
        return differ(slot.bytes_of(self.arena), slot.bytes_of(self.image))

    def _input(self, slot: Slot) -> Iterator[Violation]:
        if not self.whole:
            if bool(self.digest.of(slot.bytes_of(self.arena)) != self.digests[slot.name]):
                yield Violation("input", slot.name, f"input {slot.name} was modified")
            return
        word = poison.word_type(slot.dtype)
        changed = slot.words_of(self.arena, word) != slot.words_of(self.image, word)
        count = int(changed.sum())
        if count:
            first = changed.nonzero()[0].tolist()
            text = f"input {slot.name} was modified: {count} of {changed.numel()} elements, first at {first}"
            yield Violation("input", slot.name, text)
        elif bool(self._input_changed(slot)):
            yield Violation("input", slot.name, f"wrote between the elements of the strided input {slot.name}")

    def _poison(self, base: torch.Tensor) -> None:
        for name, pattern in self.poison.items():
            for slot in (self.layout.live[name], self.layout.snap[name]):
                slot.bytes_of(base).view(poison.word_type(slot.dtype)).fill_(pattern)

    def _protected(self) -> torch.Tensor:
        """Return the positions of all guard bytes, then of the gaps in strided outputs."""
        device = self.arena.device
        parts = [torch.arange(zone.start, zone.stop, device=device) for zone in self.layout.zones]
        for slot in self.layout.live.values():
            if slot.has_gaps:
                mask = torch.ones(slot.extent, dtype=torch.uint8, device=device)
                mask.view(poison.word_type(slot.dtype)).as_strided(slot.size, slot.stride).fill_(0)
                parts.append(mask.nonzero().flatten() + slot.at)
        return torch.cat(parts)


def differ(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a 0-d bool tensor: whether two flat uint8 tensors of one length differ; in chunks, nothing waited for."""
    aligned = left.numel() // 8 * 8
    words = left[:aligned].view(torch.int64), right[:aligned].view(torch.int64)
    step = _CHUNK // 8
    flags = [
        (words[0][start : start + step] != words[1][start : start + step]).any()
        for start in range(0, aligned // 8, step)
    ]
    if aligned < left.numel() or not flags:
        flags.append((left[aligned:] != right[aligned:]).any())
    return flags[0] if len(flags) == 1 else torch.stack(flags).any()


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """Drop repeated elements: an axis of stride 0 is kept once, so that it can be written."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def _guard(zone: Zone, changed: torch.Tensor) -> Iterator[Violation]:
    """Say which neighbour of a guard zone was overrun, and by how far."""
    middle = zone.middle - zone.start
    behind, front = changed[:middle].nonzero().flatten(), changed[middle:].nonzero().flatten()
    if len(behind) and zone.after:
        reach = int(behind[-1]) + 1
        text = f"wrote past the end of {zone.after}: {len(behind)} bytes changed, up to {reach} bytes behind it"
        yield Violation("guard", zone.after, text)
    elif len(front) and zone.before:
        reach = len(changed) - middle - int(front[0])
        text = f"wrote before the start of {zone.before}: {len(front)} bytes changed, up to {reach} bytes before it"
        yield Violation("guard", zone.before, text)
    elif len(behind) or len(front):
        yield Violation("guard", zone.after or zone.before, "wrote outside every tensor that was passed")
