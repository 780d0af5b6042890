"""Views of the slots of a block, each made once: on a card to make one costs the host as much as to launch a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.worker.layout import Slot

_CHUNK = 1 << 25  # 64-bit words compared in one operation
Parts = tuple[torch.Tensor, torch.Tensor]  # the 64-bit words of some bytes, and the bytes behind them


class Views:
    """Views of slots in `base`, a flat uint8 tensor; slots are told apart by where they are."""

    def __init__(self, base: torch.Tensor) -> None:
        self._base = base
        self._made: dict[tuple[object, int], Any] = {}

    def tensor(self, slot: Slot) -> torch.Tensor:
        """Return the slot as a tensor of its own shape, strides and dtype."""
        return self._once("tensor", slot, lambda: slot.tensor_of(self._base))  # type: ignore[no-any-return]

    def words(self, slot: Slot, word: torch.dtype) -> torch.Tensor:
        """Return the slot's elements as words of an integer dtype."""
        return self._once(word, slot, lambda: slot.words_of(self._base, word))  # type: ignore[no-any-return]

    def parts(self, slot: Slot) -> Parts:
        """Return all bytes of the slot, gaps between strided elements included."""
        return self._once("parts", slot, lambda: parts(slot.bytes_of(self._base)))  # type: ignore[no-any-return]

    def _once(self, what: object, slot: Slot, make: Callable[[], Any]) -> Any:
        found = self._made.get((what, slot.at))
        if found is None:
            found = self._made[what, slot.at] = make()
        return found


def parts(flat: torch.Tensor) -> Parts:
    """Split flat uint8 bytes into words and what is left."""
    aligned = flat.numel() // 8 * 8
    return flat[:aligned].view(torch.int64), flat[aligned:]


def differ(left: Parts, right: Parts) -> torch.Tensor:
    """Return a 0-d bool tensor: whether as many bytes differ; in chunks, nothing waited for."""
    pairs = zip(torch.split(left[0], _CHUNK), torch.split(right[0], _CHUNK), strict=True)
    flags = [(one != other).any() for one, other in pairs if one.numel()]
    if left[1].numel() or not flags:
        flags.append((left[1] != right[1]).any())
    return flags[0] if len(flags) == 1 else torch.stack(flags).any()
