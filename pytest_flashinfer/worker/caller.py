"""The caller's side of a call on a card: the stream on which it goes on once the call returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker.blocker import blocker
from pytest_flashinfer.worker.cudart import Copier

if TYPE_CHECKING:
    from collections.abc import Callable


class Caller:
    """Made before a solution is imported, so that nothing it replaces in torch is used here.

    The caller's stream is the legacy default one, torch's current stream unless somebody changes it. `copy` copies
    device memory on it, `hold_back` keeps the card busy for a moment.
    """

    def __init__(self) -> None:
        self._default = torch.cuda.default_stream()
        self._make_current = torch.cuda.set_stream
        self.copy = Copier()
        self.hold_back: Callable[[], None] = blocker()

    def take(self) -> None:
        """Make the default stream torch's current one, whatever a solution has left."""
        self._make_current(self._default)
