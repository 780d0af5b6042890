"""What a worker's client has to know of a block of memory."""

from __future__ import annotations

from typing import Any, Protocol


class Shared(Protocol):
    """A block of memory that can be described to a worker; see arena.Arena."""

    device: str

    @property
    def nbytes(self) -> int:
        """Return its size."""

    def holds(self, nbytes: int, front: int = 0) -> bool:
        """Say whether there are so many bytes in the front, and behind it."""

    def reserve(self, nbytes: int, front: int = 0) -> bool:
        """Have at least so many bytes; returns whether the block is a new one."""

    def export(self) -> tuple[dict[str, Any], list[int]]:
        """Return the message and descriptors that open the block there."""
