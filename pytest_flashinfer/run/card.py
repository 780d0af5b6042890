"""The device of a run as one of its processes uses it: its share of the memory, its turns, and what the card can do."""

from __future__ import annotations

import contextlib
import sys
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker.clock_monitor import Watch
from pytest_flashinfer.worker.device import host_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.judge.performance.cards import Limits
    from pytest_flashinfer.worker.card_sharing import Turns
    from pytest_flashinfer.worker.device import Device
    from pytest_flashinfer.worker.pool import Pool


_WAITS = (2.0, 8.0)  # seconds until others may have let go of what they only used for a moment


class Card:
    """A device that `sharers` processes of the run share, this one among them; `pool` gives this one's workers.

    On the CPU `whole` and `memory` are 0, there are no limits, and only timing takes turns: its cores are everybody's.
    """

    def __init__(self, device: Device, sharers: int, pool: Callable[[], Pool]) -> None:
        self.device = device
        self.sharers = sharers
        self.cuda = device.kind == "cuda"
        self.whole = device.memory if self.cuda else 0  # bytes
        self.memory = self.whole // sharers  # what may be kept on it: what is only used for a moment may be more
        # of the host's memory, what may be kept for this process's part of the card
        self.spare = host_memory() // (16 * sharers * max(device.count, 1)) if self.cuda else 0
        self._pool = pool

    @cached_property
    def turns(self) -> Turns:
        """This process's turns on the device."""
        from pytest_flashinfer.worker.card_sharing import Turns

        return Turns(self.device.uuid or self.device.kind, self._settle if self.cuda else None)

    def run(self, check: Callable[[], object], *, again: bool) -> None:
        """Run a check with what memory the card has, once more, and once more, where that is short and others share it.

        Only where it may be run `again`. Raises MemoryShort.
        """
        waits = list(_WAITS if again and self.sharers > 1 else ())
        while not self._suffices(check, last=not waits):
            time.sleep(waits.pop(0))
            self.turns.give_way()

    def _suffices(self, check: Callable[[], object], *, last: bool) -> bool:
        from pytest_flashinfer.worker.memory import MemoryShort

        try:
            with self.memory_needed():
                check()
        except MemoryShort:
            if last:
                raise
            return False
        return True

    @contextlib.contextmanager
    def memory_needed(self) -> Iterator[None]:
        """Say in one line that the card's memory does not suffice for the judge. Raises MemoryShort.

        What the body leaves unused of the card's memory is there for others afterwards.
        """
        try:
            yield
            self._give_back()
        except Exception as error:
            if not self.cuda:
                raise
            import torch

            from pytest_flashinfer.worker.memory import MemoryShort, is_out_of_memory

            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()
            shared = "run fewer processes on it" if self.sharers > 1 else "another program may use it"
            name = str(self.device)  # a worker sees its card alone, this process all of them
            free, own = (each / 2**30 for each in (torch.cuda.mem_get_info(name)[0], torch.cuda.memory_allocated(name)))
            state = f"{own:.1f} GiB held here, {free:.1f} of {self.whole / 2**30:.1f} GiB free"
            text = f"the memory of {self.device} does not suffice to judge this ({state}): {shared}"
            raise MemoryShort(text) from error

    def _give_back(self) -> None:
        if self._in_use is not None:
            from pytest_flashinfer.worker.memory import give_back

            give_back(max(1 << 30, self.memory // 16), str(self.device))

    def _settle(self) -> None:
        if self._in_use is not None:
            self._in_use.synchronize(str(self.device))

    @property
    def _in_use(self) -> Any:
        """torch.cuda, once this process uses the card: an item that only validates needs no device, nor torch."""
        torch: Any = sys.modules.get("torch") if self.cuda else None
        return torch.cuda if torch is not None and torch.cuda.is_initialized() else None

    @cached_property
    def watch(self) -> Watch:
        """What the driver says of the card."""
        return Watch(self.device.uuid)

    @cached_property
    def limits(self) -> Limits | None:
        """What the card can do at most, known or measured once; `None` on the CPU."""
        if not self.cuda:
            return None
        from pytest_flashinfer.judge.performance.cards import known
        from pytest_flashinfer.judge.performance.probing import measured
        from pytest_flashinfer.worker.lock import LockedOut

        listed = known(self.device.name)
        if listed is not None:
            return listed
        try:
            with self.turns.alone():
                return measured(self._pool())
        except LockedOut:
            return None
