"""What the judge knows of the arena: the bytes that must still be there after a call, and where they are not.

Small arenas have a full image on the judge's side: one copy fills them and one comparison checks them. The smallest of
a card have it on the host, and are looked at there. Large ones have images of their guard zones only; their inputs are
compared with those that they were filled with.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker.guards import Violation, apply_poison, noise, overrun, patterns, spread
from pytest_flashinfer.worker.host_image import Imaged, Staged
from pytest_flashinfer.worker.views import Views, differ, parts

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from pytest_flashinfer.worker.layout import Layout, Slot, Zone

IMAGE_LIMIT = 1 << 26  # bytes; image, mask and difference take three times as much again
STAGED_LIMIT = 1 << 19  # bytes of a card's arena that a core looks through before the card has turned to this process


class Compared:
    """A large arena without an image: guard zones are compared one by one, inputs with the judge's own.

    Bytes between the elements of strided tensors are not checked here.
    """

    def __init__(self, layout: Layout, arena: torch.Tensor, rng: random.Random) -> None:
        self.layout = layout
        self.arena = arena[: layout.total]
        self.views = Views(self.arena)
        self.poison = patterns(layout, rng)
        self._guard = noise(max(zone.stop - zone.start for zone in layout.zones), arena.device, rng)
        self._inputs: Mapping[str, torch.Tensor] = {}  # the caller's own, no longer than it has them

    def fill(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Lay the inputs into the arena, poison the outputs and restore the guard zones."""
        self._inputs = weakref.WeakValueDictionary(inputs)
        for name, slot in self.layout.inputs.items():
            spread(self.views.tensor(slot)).copy_(spread(inputs[name]))
        apply_poison(self.layout, self.arena, self.poison)
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
            found += overrun(zone, self._zone(zone).cpu())
        return found

    def _kept(self) -> list[Slot]:
        written = {slot.name for slot, _ in self.layout.inplace.values()}
        return [slot for name, slot in self.layout.inputs.items() if name not in written]

    def differs(self, slot: Slot) -> torch.Tensor:
        """Return a 0-d bool tensor, whether an input is no longer as it was laid down; nothing is waited for."""
        there, own = spread(self.views.tensor(slot)), spread(self._inputs[slot.name])
        return differ(parts(_flat(there, there.device)), parts(_flat(own, there.device)))

    def _zone(self, zone: Zone) -> torch.Tensor:
        return self.arena[zone.start : zone.stop] != self._guard[: zone.stop - zone.start]


Pristine = Imaged | Compared


def pristine_of(layout: Layout, arena: torch.Tensor, rng: random.Random) -> Pristine:
    """Return the keeper of `arena` for calls of one layout; `rng` draws guard bytes and poison."""
    if arena.is_cuda and layout.total <= STAGED_LIMIT:
        return Staged(layout, arena, rng)
    return (Imaged if layout.total <= IMAGE_LIMIT else Compared)(layout, arena, rng)


def _flat(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the bytes that `Compared.fill` lays down, in order; a copy where they are not there like that."""
    aligned = tensor.storage_offset() * tensor.itemsize % 8 == 0  # they are read as words
    lazy = tensor.is_conj() or tensor.is_neg()
    if lazy or not aligned or not tensor.is_contiguous() or tensor.device != device:
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
