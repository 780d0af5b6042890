"""What the judge knows of the arena: the bytes that must still be there after a call, and where they are not.

Small arenas have a full image on the judge's side: one copy fills them and one comparison checks them. The smallest of
a card have it on the host, and are looked at there. Large ones have images of their guard zones only; their inputs are
compared with those that they were filled with.
"""

from __future__ import annotations

import functools
import secrets
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import poison
from pytest_flashinfer.worker.views import Views, differ, parts

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.worker.layout import Layout, Slot, Zone

IMAGE_LIMIT = 1 << 26  # bytes; image, mask and difference take three times as much again
STAGED_LIMIT = 3 << 20  # bytes of a card's arena that a core looks through before the card has turned to this process
_NOISE = 1 << 20  # bytes after which guard bytes repeat: drawing them costs more than anything else here
_NO_COPY = 0xFF  # in place of the last call's copy of an input
_CACHED = 1 << 15  # 64-bit words compared in one operation on the CPU, whose caches hold as many


@dataclass(frozen=True)
class Violation:
    """Something a call must not do, or did not do. `kind` is a short word, `tensor` its subject ("" for none)."""

    kind: str
    tensor: str
    message: str

    def __str__(self) -> str:
        return self.message


class Imaged:
    """A small arena with its image: one copy fills it, one masked comparison checks it."""

    def __init__(self, layout: Layout, arena: torch.Tensor, rng: random.Random) -> None:
        self.layout = layout
        self.arena = arena[: layout.total]
        self.poison = _patterns(layout, rng)
        self.views = Views(self.arena)
        self.image = _noise(layout.total, arena.device, rng)
        _apply_poison(layout, self.image, self.poison)
        self._inputs = {name: _spread(slot.tensor_of(self.image)) for name, slot in layout.inputs.items()}
        self._before = Views(self.image)

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Lay the inputs into the arena, poison the outputs and restore the guard zones."""
        for name, place in self._inputs.items():
            place.copy_(_spread(inputs[name]))
        self.arena.copy_(self.image)

    def look(self) -> None:
        """Take what there is now: what is asked after it is asked of that."""

    def changes(self) -> list[torch.Tensor]:
        """Return 0-d bool tensors, true where protected bytes changed; nothing is waited for."""
        return [((now ^ before) & mask).any() for now, before, mask in self._protected]

    def differs(self, slot: Slot) -> torch.Tensor:
        """Return a 0-d bool tensor, whether an input is no longer as it was laid down; nothing is waited for."""
        return differ(self.views.parts(slot), self._before.parts(slot))

    @functools.cached_property
    def _protected(self) -> list[tuple[torch.Tensor, ...]]:
        """The arena, its image and the mask as 64-bit words, side by side in the parts that are compared at a time."""
        step = self.image.numel() // 8 if self.image.is_cuda else _CACHED
        words = (each.view(torch.int64) for each in (self.arena, self.image, self._mask))
        return list(zip(*(torch.split(each, step) for each in words), strict=True))

    def explain(self) -> list[Violation]:
        """Say which inputs and guard zones changed, and how; waits for the device."""
        changed = self._difference().view(torch.uint8).cpu() != 0
        found = [each for slot in self.layout.inputs.values() for each in _input(slot, changed)]
        for zone in self.layout.zones:
            found += _guard(zone, changed[zone.start : zone.stop])
        for name, slot in self.layout.live.items():
            if bool(slot.bytes_of(changed).any()):
                found.append(Violation("guard", name, f"wrote between the elements of the strided output {name}"))
        return found

    def _difference(self) -> torch.Tensor:
        """Return the arena's changes as 64-bit words, zero wherever changes are allowed."""
        words = (self.arena.view(torch.int64), self.image.view(torch.int64))
        return (words[0] ^ words[1]) & self._mask.view(torch.int64)

    @functools.cached_property
    def _mask(self) -> torch.Tensor:
        """The bytes that must stay: all but the elements of outputs and of inputs that outputs are written into."""
        mask, layout = torch.full_like(self.image, 255), self.layout
        written = [slot for slot, _ in layout.inplace.values()]
        for slot in (*written, *layout.live.values(), *layout.snap.values()):
            slot.words_of(mask, poison.word_type(slot.dtype)).fill_(0)
        for _, copy in layout.inplace.values():  # it has what lies between the elements as well
            copy.bytes_of(mask).fill_(0)
        return mask


class Staged(Imaged):
    """An arena of a card, filled from the host and looked at there, in memory that nobody else has.

    To turn from one process to another takes a card longer than a small kernel does. Copies go by units of their own,
    so nothing else is asked of it here.
    """

    def __init__(self, layout: Layout, arena: torch.Tensor, rng: random.Random) -> None:
        self._card = arena[: layout.total]
        super().__init__(layout, torch.empty(layout.total, dtype=torch.uint8, pin_memory=arena.is_cuda), rng)

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Lay the inputs into the arena, poison the outputs and restore the guard zones."""
        super().fill(inputs)
        self._card.copy_(self.arena)

    def look(self) -> None:
        """Take what there is now: what is asked after it is asked of that."""
        self.arena.copy_(self._card)


class Compared:
    """A large arena without an image: guard zones are compared one by one, inputs with the judge's own.

    Bytes between the elements of strided tensors are not checked here.
    """

    def __init__(self, layout: Layout, arena: torch.Tensor, rng: random.Random) -> None:
        self.layout = layout
        self.arena = arena[: layout.total]
        self.views = Views(self.arena)
        self.poison = _patterns(layout, rng)
        self._guard = _noise(max(zone.stop - zone.start for zone in layout.zones), arena.device, rng)
        self._inputs: Mapping[str, torch.Tensor] = {}  # the caller's own, no longer than it has them

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Lay the inputs into the arena, poison the outputs and restore the guard zones."""
        self._inputs = weakref.WeakValueDictionary(inputs)
        for name, slot in self.layout.inputs.items():
            _spread(self.views.tensor(slot)).copy_(_spread(inputs[name]))
        _apply_poison(self.layout, self.arena, self.poison)
        for zone in self.layout.zones:
            self.arena[zone.start : zone.stop] = self._guard[: zone.stop - zone.start]

    def look(self) -> None:
        """Nothing to take: what is asked is asked of the arena itself."""

    def changes(self) -> list[torch.Tensor]:
        """Return 0-d bool tensors, true where protected bytes changed; nothing is waited for."""
        zones = [self._zone(zone).any() for zone in self.layout.zones]
        return zones + [self.differs(slot) for slot in self._kept()]

    def explain(self) -> list[Violation]:
        """Say which inputs and guard zones changed, and how; waits for the device."""
        found = [
            Violation("input", slot.name, f"input {slot.name} was modified")
            for slot in self._kept()
            if bool(self.differs(slot))
        ]
        for zone in self.layout.zones:
            found += _guard(zone, self._zone(zone).cpu())
        return found

    def _kept(self) -> list[Slot]:
        written = {slot.name for slot, _ in self.layout.inplace.values()}
        return [slot for name, slot in self.layout.inputs.items() if name not in written]

    def differs(self, slot: Slot) -> torch.Tensor:
        """Return a 0-d bool tensor, whether an input is no longer as it was laid down; nothing is waited for."""
        there, own = _spread(self.views.tensor(slot)), _spread(self._inputs[slot.name])
        return differ(parts(_flat(there, there.device)), parts(_flat(own, there.device)))

    def _zone(self, zone: Zone) -> torch.Tensor:
        return self.arena[zone.start : zone.stop] != self._guard[: zone.stop - zone.start]


Pristine = Imaged | Compared


def pristine_of(layout: Layout, arena: torch.Tensor, rng: random.Random) -> Pristine:
    """Return the keeper of `arena` for calls of one layout; `rng` draws guard bytes and poison."""
    if arena.is_cuda and layout.total <= STAGED_LIMIT:
        return Staged(layout, arena, rng)
    return (Imaged if layout.total <= IMAGE_LIMIT else Compared)(layout, arena, rng)


def _patterns(layout: Layout, rng: random.Random) -> dict[str, int]:
    return {name: poison.pattern(slot.dtype, rng) for name, slot in layout.live.items()}


def _noise(nbytes: int, device: torch.device, rng: random.Random) -> torch.Tensor:
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


def _apply_poison(layout: Layout, base: torch.Tensor, patterns: Mapping[str, int]) -> None:
    for name, pattern in patterns.items():
        for slot in (layout.live[name], layout.snap[name]):
            slot.bytes_of(base).view(poison.word_type(slot.dtype)).fill_(pattern)
    for _, copy in layout.inplace.values():
        copy.bytes_of(base).fill_(_NO_COPY)


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """Drop repeated elements: an axis of stride 0 is kept once, so that it can be written."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def _flat(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the bytes that `Compared.fill` lays down, in order; a copy where they are not there like that."""
    aligned = tensor.storage_offset() * tensor.itemsize % 8 == 0  # they are read as words
    lazy = tensor.is_conj() or tensor.is_neg()
    if lazy or not aligned or not tensor.is_contiguous() or tensor.device != device:
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _input(slot: Slot, changed: torch.Tensor) -> Iterator[Violation]:
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
    _spread(words).fill_(0)
    if bool(own.any()):
        yield Violation("guard", slot.name, f"wrote between the elements of the strided input {slot.name}")


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
