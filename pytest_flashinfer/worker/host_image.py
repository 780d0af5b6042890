"""Small arenas: the bytes that must still be there after a call, as one image of them all."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import poison
from pytest_flashinfer.worker.guards import Violation, apply_poison, modified, noise, overrun, patterns, spread
from pytest_flashinfer.worker.views import Parts, Views, differ, parts

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from pytest_flashinfer.worker.layout import Layout, Slot

_CACHED = 1 << 15  # 64-bit words compared in one operation on the CPU, whose caches hold as many


class Imaged:
    """A small arena with its image: one copy fills it, one masked comparison checks it."""

    def __init__(self, layout: Layout, arena: torch.Tensor, rng: random.Random) -> None:
        self.layout = layout
        self.arena = arena[: layout.total]
        self.poison = patterns(layout, rng)
        self.views = Views(self.arena)
        self.image = noise(layout.total, arena.device, rng)
        apply_poison(layout, self.image, self.poison)
        self._inputs = {name: spread(slot.tensor_of(self.image)) for name, slot in layout.inputs.items()}
        self._before = Views(self.image)

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Lay the inputs into the arena, poison the outputs and restore the guard zones."""
        for name, place in self._inputs.items():
            place.copy_(spread(inputs[name]))
        self.arena.copy_(self.image)

    def look(self) -> None:
        """Take what there is now: what is asked after it is asked of that."""

    def changes(self) -> list[torch.Tensor]:
        """Return 0-d bool tensors, true where protected bytes changed; nothing is waited for."""
        whole = [differ(now, before) for now, before in self._whole]
        return whole + [((now ^ before) & mask).any() for now, before, mask in self._mixed]

    def differs(self, slot: Slot) -> torch.Tensor:
        """Return a 0-d bool tensor, whether an input is no longer as it was laid down; nothing is waited for."""
        return differ(self.views.parts(slot), self._before.parts(slot))

    @functools.cached_property
    def _whole(self) -> list[tuple[Parts, Parts]]:
        """The arena and its image, side by side, where all bytes must stay: the host compares these sooner than words.

        A card compares everything in one operation.
        """
        if self.arena.is_cuda:
            return []
        written = sorted((slot.at, slot.at + slot.extent) for slot in self._written())
        ends = [0, *(stop for _, stop in written)]
        starts = [*(start for start, _ in written), self.layout.total]
        return [(parts(self.arena[a:b]), parts(self.image[a:b])) for a, b in zip(ends, starts, strict=True)]

    @functools.cached_property
    def _mixed(self) -> list[tuple[torch.Tensor, ...]]:
        """The arena, its image and the mask as 64-bit words, side by side, where some bytes must stay."""
        words = [each.view(torch.int64) for each in (self.arena, self.image, self._mask)]
        if self.arena.is_cuda:
            return [tuple(words)]
        gapped = [slot for slot in self._written() if slot.extent > math.prod(slot.size) * slot.dtype.itemsize]
        places = [(slot.at // 8, -(-(slot.at + slot.extent) // 8)) for slot in gapped]
        own = [tuple(each[start:stop] for each in words) for start, stop in places]
        return [part for each in own for part in zip(*(torch.split(x, _CACHED) for x in each), strict=True)]

    def _written(self) -> list[Slot]:
        """Return the slots that hold bytes which may change."""
        pairs = self.layout.inplace.values()
        return [*(slot for pair in pairs for slot in pair), *self.layout.live.values(), *self.layout.snap.values()]

    def explain(self) -> list[Violation]:
        """Say which inputs and guard zones changed, and how; waits for the device."""
        changed = self._difference().view(torch.uint8).cpu() != 0
        found = [each for slot in self.layout.inputs.values() for each in modified(slot, changed)]
        for zone in self.layout.zones:
            found += overrun(zone, changed[zone.start : zone.stop])
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
        mask = torch.full_like(self.image, 255)
        for slot in self._written():
            slot.words_of(mask, poison.word_type(slot.dtype)).fill_(0)
        for _, copy in self.layout.inplace.values():  # it has what lies between the elements as well
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
