"""What a reference does outside torch, with NumPy or Python's numbers: no run sees how that is rounded."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.floats import moved
from pytest_flashinfer.judge.oracle.lifted import Lifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WAYS = ("tolist", "numpy", "__array__")
_KEPT = 1 << 16  # values of a tensor that are remembered
_LOOKED_AT = 64  # values of a table


class Outside:
    """Floating values that have left torch in one run."""

    def __init__(self) -> None:
        self._left: set[float] = set()
        self._any = False

    def leaves(self, value: Lifted) -> None:
        """Note values that the reference reads."""
        self._any = True
        if value.numel() <= _KEPT:
            self._left.update(torch.Tensor.tolist(value.as_subclass(torch.Tensor).detach().flatten()))

    def made(self, value: Lifted) -> bool:
        """Say whether what comes in was computed outside: some has not left, and has more digits than a constant."""
        if not self._any:
            return False
        found = torch.Tensor.tolist(value.as_subclass(torch.Tensor).flatten())
        coarse = not bool(moved(value, torch.bfloat16).any())
        return not coarse and not all(each in self._left or float(f"{each:.6g}") == each for each in found)


def computed(table: torch.Tensor) -> bool:
    """Say whether a table made outside the reference was rounded to float32 or float64: its values have many digits."""
    if table.dtype.itemsize < torch.float32.itemsize:
        return False
    some = table.detach().reshape(-1)[:: max(1, table.numel() // _LOOKED_AT)]
    plain = torch.tensor([float(f"{each:.6g}") for each in some.tolist()], dtype=table.dtype, device=table.device)
    return bool((moved(some, torch.bfloat16) & (some != plain)).any())


@contextmanager
def departures(outside: Outside) -> Iterator[None]:
    """Note values that leave torch by methods that are no operations."""
    for name in _WAYS:
        setattr(Lifted, name, _noting(outside, getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name in _WAYS:
            delattr(Lifted, name)


def _noting(outside: Outside, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Lifted, *args: Any, **kwargs: Any) -> Any:
        outside.leaves(self)
        return method(self, *args, **kwargs)

    return call
