"""Inputs that one solution was called with, for the next one."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping


class Kept:
    """The latest inputs that were made, up to `limit` bytes: the next solution is called with the same ones."""

    def __init__(self, limit: int = 1 << 28) -> None:
        self.limit = limit
        self._values: OrderedDict[Hashable, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return what is kept under `key`, made if need be. Nobody may write to the tensors."""
        if key not in self._values:
            made = make()
            self._values[key] = made, _bytes(made)
            self._bytes += self._values[key][1]
        self._values.move_to_end(key)
        while len(self._values) > 1 and self._bytes > self.limit:
            _, (_, dropped) = self._values.popitem(last=False)
            self._bytes -= dropped
        return self._values[key][0]


def _bytes(values: Mapping[str, Any]) -> int:
    return sum(value.nbytes for value in values.values() if isinstance(value, torch.Tensor))
