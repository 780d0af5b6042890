"""Where truths lie until the next solution asks: the latest on the device, the dearest of the others on the host."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_DEAR = 0.5  # seconds; what was found faster is found again rather than copied to and fro
T = TypeVar("T")


@dataclass(frozen=True)
class _Entry(Generic[T]):
    found: T
    seconds: float
    nbytes: int
    device: torch.device


class Shelf(Generic[T]):
    """Truths, or the errors that stand for them, by key.

    Up to `near` bytes of them stay on the device, the longest unused going first. What goes and took long to find is
    kept on the host, up to `far` bytes, what took the least time going first.
    """

    def __init__(self, near: int, far: int = 0) -> None:
        self.near = near
        self.far = far
        self._near: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._near_bytes = 0  # a sum over thousands of small truths, for each that comes, would take long
        self._far: dict[Hashable, _Entry[T]] = {}

    def get(self, key: Hashable) -> T | None:
        """Return what is kept under `key`, on the device that it was found on."""
        if key not in self._near and key in self._far:
            entry = self._far[key]
            self._add(key, replace(entry, found=_moved(entry.found, entry.device)))
        if key not in self._near:
            return None
        self._near.move_to_end(key)
        return self._near[key].found

    def put(self, key: Hashable, found: T, seconds: float) -> None:
        """Keep what took `seconds` to find, under a key that nothing is kept under."""
        tensors = list(_tensors(found))
        device = tensors[0].device if tensors else torch.device("cpu")
        self._add(key, _Entry(found, seconds, sum(map(_size, tensors)), device))

    def make_room(self) -> None:
        """Let go of what takes more than its share even by itself, since something as large is to come."""
        self._trim(least=0)

    def clear(self) -> None:
        """Forget everything."""
        self._near.clear()
        self._near_bytes = 0
        self._far.clear()

    def _add(self, key: Hashable, entry: _Entry[T]) -> None:
        self._near[key] = entry
        self._near_bytes += entry.nbytes
        self._trim(least=1)

    def _trim(self, least: int) -> None:
        while len(self._near) > least and self._near_bytes > self.near:
            old, dropped = self._near.popitem(last=False)
            self._near_bytes -= dropped.nbytes
            if dropped.seconds >= _DEAR and dropped.nbytes <= self.far and old not in self._far:
                self._far[old] = replace(dropped, found=_moved(dropped.found, torch.device("cpu")))
        while sum(each.nbytes for each in self._far.values()) > self.far:
            del self._far[min(self._far, key=lambda each: self._far[each].seconds)]


def _size(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor takes: a bound that rows share is there once for each row."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _tensors(found: object) -> Iterator[torch.Tensor]:
    for output in found.outputs.values() if isinstance(found, Truth) else ():
        parts = (getattr(output, each.name) for each in fields(OutputTruth))
        yield from (each for each in parts if isinstance(each, torch.Tensor))


def _moved(found: T, device: torch.device) -> T:
    if not isinstance(found, Truth):
        return found
    outputs = {}
    for name, output in found.outputs.items():
        parts = {each.name: getattr(output, each.name) for each in fields(OutputTruth)}
        moved: dict[str, Any] = {
            key: _sent(part, device) for key, part in parts.items() if isinstance(part, torch.Tensor)
        }
        outputs[name] = replace(output, **moved)
    return replace(found, outputs=outputs)


def _sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on another device; what elements share is shared there too: a copy would write it out."""
    once = tuple(slice(None) if step else slice(1) for step in tensor.stride())
    return tensor[once].to(device).expand(tensor.shape)
