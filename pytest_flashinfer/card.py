"""The device of a run as one of its processes uses it: its share of the memory, its turns, and what the card can do."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pytest_flashinfer.worker.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.judge.cards import Limits
    from pytest_flashinfer.worker.device import Device
    from pytest_flashinfer.worker.pool import Pool
    from pytest_flashinfer.worker.turns import Turns


class Card:
    """A device that `sharers` processes of the run share, this one among them; `pool` gives this one's workers.

    On the CPU `memory` is 0, there are no limits, and only timing takes turns: its cores are everybody's.
    """

    def __init__(self, device: Device, sharers: int, pool: Callable[[], Pool]) -> None:
        self.device = device
        self.cuda = device.kind == "cuda"
        self.memory = device.memory // sharers if self.cuda else 0  # bytes that are this process's
        self._pool = pool

    @cached_property
    def turns(self) -> Turns:
        """This process's turns on the device."""
        from pytest_flashinfer.worker.turns import Turns

        return Turns(self.device.uuid or self.device.kind, self._settle if self.cuda else None)

    def _settle(self) -> None:
        import torch

        torch.cuda.synchronize(str(self.device))

    @cached_property
    def watch(self) -> Watch:
        """What the driver says of the card."""
        return Watch(self.device.uuid)

    @cached_property
    def limits(self) -> Limits | None:
        """What the card can do at most, known or measured once; `None` on the CPU."""
        if not self.cuda:
            return None
        from pytest_flashinfer.judge.cards import known
        from pytest_flashinfer.judge.probing import measured
        from pytest_flashinfer.worker.lock import LockedOut

        listed = known(self.device.name)
        if listed is not None:
            return listed
        try:
            with self.turns.alone():
                return measured(self._pool())
        except LockedOut:
            return None
