"""Bits of floats that a reference looks at: a wide run takes those of a copy in the declared dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from pytest_flashinfer.judge.floats import representable
from pytest_flashinfer.judge.oracle.lifted import Lifted

if TYPE_CHECKING:
    from collections.abc import Sequence


def certain(arg: Lifted, wide: torch.dtype) -> bool:
    """Say whether every kernel finds the same bits: of values that no rounding has touched and that the dtype holds.

    NaN has many, of which a cast keeps one.
    """
    plain = arg.as_subclass(torch.Tensor)
    held = arg.declared.itemsize <= wide.itemsize and representable(plain, arg.declared)
    return arg.clean and held and not bool(plain.isnan().any())


def natively(args: Sequence[Any], wide: torch.dtype) -> Sequence[Any]:
    """Return the arguments of `view(tensor, dtype)` with the bits that the tensor has natively."""
    tensor, dtype = args
    if not isinstance(tensor, Lifted):
        return args
    if dtype == tensor.declared:
        return tensor, wide
    return torch.Tensor.to(tensor, tensor.declared).as_subclass(torch.Tensor), dtype


class Apart:
    """The memory of tensors that natively share it with a view of their bits, and do not in a wide run."""

    def __init__(self) -> None:
        self._seen: set[StorageWeakRef] = set()

    def add(self, viewed: torch.Tensor, view: torch.Tensor) -> None:
        """Remember a tensor and the view of it."""
        both = _memory(viewed), _memory(view)
        if both[0] != both[1]:
            self._seen.update(both)

    def __contains__(self, tensor: object) -> bool:
        """Say whether a tensor is in such memory; what is written into it is not seen in the other."""
        return bool(self._seen) and isinstance(tensor, torch.Tensor) and _memory(tensor) in self._seen


def _memory(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
