"""What a call returned, looked at again later: it is its caller's, and nobody may change it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import results

if TYPE_CHECKING:
    from pytest_flashinfer.worker.copies import Held
    from pytest_flashinfer.worker.memory import Memory

_NOW = time.perf_counter  # all bound before a solution is imported
_TENSOR = torch.Tensor
_CLONE = torch.Tensor.clone
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_VIEW = torch.Tensor.view
_EQUAL = torch.equal
_NO_GRAD = torch.no_grad
_AGE = 0.05  # seconds after which a result is looked at again, and another one is kept
_SMALL = 1 << 20  # bytes of results that are kept


class Lasting:
    """Keeps the results of one untimed call with copies of them; after a while those of another one."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        self._since = 0.0

    def keep(self, held: Held, memory: Memory) -> None:
        """Keep what a call returned, unless something is kept, or it is large; the arena is filled anew by others."""
        if not self._kept and sum(output["bytes"] for output, _ in held) <= _SMALL:
            arena = range(memory.base, memory.base + memory.size)
            own = [(output["name"], value) for output, value in held if isinstance(value, _TENSOR)]
            values = [(name, value) for name, value in own if results.storage_of(value) not in arena]
            with _NO_GRAD():
                self._kept = [(name, value, _CLONE(value)) for name, value in values]
            self._since = _NOW()

    def drop(self) -> None:
        """Keep nothing: the next call is to find the memory free."""
        self._kept = []

    def changed(self) -> list[str]:
        """Return the outputs whose kept values are others now, once enough time has passed; waits for the device."""
        if not self._kept or _NOW() - self._since < _AGE:
            return []
        kept, self._kept = self._kept, []
        with _NO_GRAD():
            return [name for name, value, copy in kept if not _same(value, copy)]


def _same(value: torch.Tensor, copy: torch.Tensor) -> bool:
    """Say whether all bits are the same; NaN are, too."""
    word = _WORDS.get(value.itemsize)
    if word is None or not value.dim() or value.is_complex():
        return _EQUAL(value, copy)
    return _EQUAL(_VIEW(value, word), _VIEW(copy, word))
