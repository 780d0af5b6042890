"""What lies around and in the tensors of an arena before a call, and in what words it is told that it changed."""

from __future__ import annotations

import functools
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import poison

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.worker.layout import Layout, Slot, Zone

_NOISE = 1 << 20  # bytes after which guard bytes repeat: drawing them costs more than anything else here
_NO_COPY = 0xFF  # in place of the last call's copy of an input


@dataclass(frozen=True)
class Violation:
    """Something a call must not do, or did not do. `kind` is a short word, `tensor` its subject ("" for none)."""

    kind: str
    tensor: str
    message: str

    def __str__(self) -> str:
        return self.message


def patterns(layout: Layout, rng: random.Random) -> dict[str, int]:
    """Draw what every output is filled with."""
    return {name: poison.pattern(slot.dtype, rng) for name, slot in layout.live.items()}


def noise(nbytes: int, device: torch.device, rng: random.Random) -> torch.Tensor:
    """Return bytes of the run's own noise, from a place that is drawn."""
    block, start = _noise_of(device), 16 * rng.randrange(_NOISE // 16)  # where an element of any dtype may lie
    if nbytes <= _NOISE:
        return block[start : start + nbytes].clone()
    return block[:_NOISE].repeat(-(-nbytes // _NOISE) + 1)[start : start + nbytes]


@functools.cache
def _noise_of(device: torch.device) -> torch.Tensor:
    """Draw twice as many bytes as are used at once, so that they can be taken from anywhere in the first half."""
    generator = torch.Generator(device=device).manual_seed(secrets.randbits(62))
    drawn = torch.randint(0, 256, (_NOISE,), dtype=torch.uint8, device=device, generator=generator)
    return drawn.repeat(2)


def apply_poison(layout: Layout, base: torch.Tensor, patterns: Mapping[str, int]) -> None:
    """Fill the places of outputs, and of the copies made at return."""
    for name, pattern in patterns.items():
        for slot in (layout.live[name], layout.snap[name]):
            slot.bytes_of(base).view(poison.word_type(slot.dtype)).fill_(pattern)
    for _, copy in layout.inplace.values():
        copy.bytes_of(base).fill_(_NO_COPY)


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """Drop repeated elements: an axis of stride 0 is kept once, so that it can be written."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def modified(slot: Slot, changed: torch.Tensor) -> Iterator[Violation]:
    """Say how many elements of an input changed, and whether bytes between them did: these are nobody's to change."""
    if not bool(slot.bytes_of(changed).any()):
        return
    own, word = slot.bytes_of(changed).to(torch.uint8), poison.word_type(slot.dtype)
    words = replace(slot, at=0).words_of(own, word)
    elements = words != 0
    count = int(elements.sum())
    if count:
        first = elements.nonzero()[0].tolist()
        text = f"input {slot.name} was modified: {count} of {elements.numel()} elements, first at {first}"
        yield Violation("input", slot.name, text)
    spread(words).fill_(0)
    if bool(own.any()):
        yield Violation("guard", slot.name, f"wrote between the elements of the strided input {slot.name}")


def overrun(zone: Zone, changed: torch.Tensor) -> Iterator[Violation]:
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
