"""How processes share a card: correctness goes on side by side, and pauses while one of them times."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from pytest_flashinfer.worker.lock import MOST_SECONDS, LockedOut, card_lock, free, hold, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Turns:
    """This process's turns on a card, shared with other xdist workers and other runs of this host.

    Two locks. Who works holds the second one with others, and lets go of it, between two calls, when somebody holds
    the first. Who times takes the first, which nobody shares, and then has the second to itself. `card` is the UUID,
    or any name that all processes give it; `settle` is called before this process pauses: nothing of its own may
    still run on the card then. Without a `settle` work is never shared, as on the CPU, and only timing takes turns.
    """

    def __init__(self, card: str, settle: Callable[[], None] | None = None, folder: Path | None = None) -> None:
        self.card = card
        self.settle = settle
        self.folder = folder
        self._first: int | None = None
        self._second: int | None = None
        self._working = False

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Work on the card during the body, beside others. Where there can be no lock, without one."""
        if self.settle is None or self._working or not self._ready():
            yield
            return
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def give_way(self) -> None:
        """Pause while somebody times, if this process is working."""
        if self._working and self._first is not None and not free(self._first):
            self._leave()
            self._enter()

    @contextlib.contextmanager
    def alone(self, most: float = MOST_SECONDS) -> Iterator[float]:
        """Have the card for this process during the body; yields the seconds that were waited.

        Raises LockedOut after `most` seconds, and where the lock cannot be made.
        """
        back = self._working
        if back:
            self._leave()
        try:
            with card_lock(self.card, self.folder, most) as waited:
                if self.settle is None or not self._ready():
                    yield waited
                    return
                assert self._second is not None
                further = hold(self._second, self.card, most)
                try:
                    yield waited + further
                finally:
                    hold(self._second, self.card, 0, share=None)
        finally:
            if back:
                self._enter()

    def close(self) -> None:
        """Let go of the card."""
        for handle in (self._first, self._second):
            if handle is not None:
                os.close(handle)
        self._first = self._second = None
        self._working = False

    def _enter(self) -> None:
        assert self._first is not None
        assert self._second is not None
        hold(self._first, self.card, MOST_SECONDS, share=True)  # behind whoever times, or waits to
        try:
            hold(self._second, self.card, MOST_SECONDS, share=True)
        finally:
            hold(self._first, self.card, 0, share=None)
        self._working = True

    def _leave(self) -> None:
        assert self._second is not None
        assert self.settle is not None
        try:
            self.settle()
        finally:  # a device that fails does no work any more: the others need not wait for this process's end
            hold(self._second, self.card, 0, share=None)
            self._working = False

    def _ready(self) -> bool:
        with contextlib.suppress(LockedOut):  # timing says so; work does not need one
            if self._first is None:
                self._first = opened(self.card, self.folder)
            if self._second is None:
                self._second = opened(f"{self.card} in use", self.folder)
        return self._second is not None
