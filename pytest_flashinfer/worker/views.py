"""Views of the slots of a block, each made once: on a card to make one costs the host as much as to launch a kernel."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.worker.layout import Slot

_CHUNK = 1 << 25  # 64-bit words compared in one operation
_MEMCMP = ctypes.CDLL(None).memcmp  # a tenth of what torch takes to compare bytes on the host
_MEMCMP.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
Parts = tuple[torch.Tensor, torch.Tensor]  # some bytes as 64-bit words, and the bytes behind these


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
    """Split flat uint8 bytes into words and what is left; on the host, where they are compared as bytes, into one."""
    aligned = flat.numel() // 8 * 8
    if not flat.is_cuda:
        return flat, flat[:0]
    return flat[:aligned].view(torch.int64), flat[aligned:]


def differ(left: Parts, right: Parts) -> torch.Tensor:
    """Return a 0-d bool tensor: whether as many bytes differ; on a card in chunks, nothing waited for."""
    if not left[0].is_cuda:
        return torch.tensor(any(map(_differ_here, left, right)))
    pairs = zip(torch.split(left[0], _CHUNK), torch.split(right[0], _CHUNK), strict=True)
    flags = [(one != other).any() for one, other in pairs if one.numel()]
    if left[1].numel() or not flags:
        flags.append((left[1] != right[1]).any())
    return flags[0] if len(flags) == 1 else torch.stack(flags).any()


def _differ_here(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Say whether the bytes of two contiguous tensors of the host differ."""
    return bool(left.numel()) and _MEMCMP(left.data_ptr(), right.data_ptr(), left.nbytes) != 0
