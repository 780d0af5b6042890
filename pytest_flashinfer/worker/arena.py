"""The judge's end of the one block of memory that it shares with a worker (memory.py).

On the CPU it is a sealed memfd that both map, on a card pieces of physical memory of its own: torch's caching allocator
would share whole segments, with whatever else lies in them. The judge allocates, so it reads the bytes of its own
memory, never an object that the worker made.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pytest_flashinfer.worker import cudart, cumem
from pytest_flashinfer.worker.memory import LARGE

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROWTH = 1 << 26  # bytes: what is too small doubles up to here, and is as large as needed beyond


class Holder(Protocol):
    """Whoever has a block mapped."""

    def let_go(self, memory: Arena) -> None:
        """Unmap it."""


class InputPieces:
    """Physical memory of a card for inputs, mapped by one worker after the other.

    How long a product takes depends on where in the card its weights lie, by up to a tenth: those that are compared
    have them at the same place. It grows at its front: inputs lie at its end, and stay there. No output is ever in it.
    """

    def __init__(self) -> None:
        self._pieces: list[cumem.Piece] = []  # the last made first
        self.filled_for: object = None  # whose inputs lie there

    @property
    def nbytes(self) -> int:
        """Return its size."""
        return sum(piece.nbytes for piece in self._pieces)

    def at_end(self, nbytes: int, device: int) -> list[cumem.Piece]:
        """Return the fewest pieces at its end that hold `nbytes`; grows where they do not suffice."""
        missing = nbytes - self.nbytes
        if missing > 0:
            self._pieces.insert(0, cumem.Piece(max(missing, min(self.nbytes, _GROWTH)), device))
        first = next(at for at in range(len(self._pieces), -1, -1) if _size(self._pieces[at:]) >= nbytes)
        return self._pieces[first:]

    def shrink(self, most: int) -> None:
        """Give back what came last until no more than `most` bytes are left; whoever has it mapped still holds it."""
        while self.nbytes > most:
            self._pieces.pop(0).close()


class Arena:
    """One block of bytes on `device` (`"cpu"` or `"cuda:N"`), grown by replacement: a front for inputs, and the rest.

    `data` is a uint8 tensor over all of it. On a card the front, if any, is that of `inputs`, which others map too.
    The address stays as long as the block is large enough, so that the same storage is used again with other contents.
    """

    def __init__(self, device: str, inputs: InputPieces | None = None) -> None:
        self.device = device
        self.front = 0
        self.data = torch.empty(0, dtype=torch.uint8, device=device)
        self._inputs = InputPieces() if inputs is None else inputs
        self._shared: list[cumem.Piece] = []
        self._own: cumem.Piece | _HostBlock | None = None
        self._mapping: cumem.VirtualMapping | None = None

    @property
    def nbytes(self) -> int:
        """Return the size of the block, 0 where there is none."""
        return self.data.numel()

    def holds(self, nbytes: int, front: int = 0) -> bool:
        """Say whether there are `front` bytes in the front and `nbytes` behind it."""
        return front <= self.front and nbytes <= self.nbytes - self.front

    def reserve(self, nbytes: int, front: int = 0) -> bool:
        """Have at least as much as `holds` asks for.

        Returns whether the block is a new one, which the worker must map: see Worker.fit.
        """
        if self.holds(nbytes, front):
            return False
        if self.nbytes <= LARGE:  # calls of other sizes are to find room as well
            front, nbytes = max(front, self.front), max(nbytes, self.nbytes - self.front)
        self.close()
        if self.device == "cpu":
            self._on_host(nbytes, front)
        else:
            with torch.cuda.device(self.device):
                self._on_card(nbytes, front, torch.cuda.current_device())
        return True

    def window(self, nbytes: int, front: int) -> torch.Tensor:
        """Return `nbytes` that begin `front` bytes ahead of the end of the front."""
        return self.data[self.front - front :][:nbytes]

    def claim(self) -> None:
        """Note that the inputs in the front are, from now on, those of this block's user."""
        self._inputs.filled_for = self

    @property
    def claimed(self) -> bool:
        """Whether nobody else has laid inputs into the front since `claim`."""
        return not self._shared or self._inputs.filled_for is self

    def export(self) -> tuple[dict[str, Any], list[int]]:
        """Return the message and the descriptors by which `Memory.map` opens this block in the worker."""
        parts = [*self._shared, *([] if self._own is None else [self._own])]
        host = self.device == "cpu"
        return {"host": host, "bytes": [x.nbytes for x in parts], "fds": len(parts)}, [x.fd for x in parts]

    def leave(self, worker: Holder) -> bool:
        """Give a large block back while nothing is asked of `worker`, which has it mapped; return if it was one."""
        if self.nbytes <= LARGE:
            return False
        worker.let_go(self)
        self.close()
        self._inputs.shrink(LARGE)
        return True

    def close(self) -> None:
        """Give the block back; tensors over it must not be used any more."""
        self.data = torch.empty(0, dtype=torch.uint8, device=self.device)
        self.front = 0
        if self._mapping is not None:
            mapping, self._mapping = self._mapping, None
            with contextlib.suppress(cudart.CudaError), torch.cuda.device(self.device):
                cudart.synchronize()
                mapping.close()
        if self._own is not None:
            self._own.close()
        self._own, self._shared = None, []

    def _on_host(self, nbytes: int, front: int) -> None:
        self.front = cumem.rounded(front) if front else 0
        self._own = _HostBlock(self.front + cumem.rounded(nbytes))
        self.data = torch.frombuffer(mmap.mmap(self._own.fd, self._own.nbytes), dtype=torch.uint8)

    def _on_card(self, nbytes: int, front: int, device: int) -> None:
        self._shared = self._inputs.at_end(front, device) if front else []
        self._own = cumem.Piece(nbytes, device)
        self._mapping = cumem.VirtualMapping([(x.fd, x.nbytes) for x in (*self._shared, self._own)], device)
        self.front = _size(self._shared)
        self.data = torch.as_tensor(cudart.Block(self._mapping.pointer, self._mapping.nbytes), device=self.device)
        self.data.zero_()  # a truth may have lain here, and a solution is to see this
        torch.cuda.synchronize(self.device)


class _HostBlock:
    """A memfd that nobody can resize: a shrunk one would kill the judge with SIGBUS."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, nbytes)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)

    def close(self) -> None:
        """Have nobody else map it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _size(pieces: Sequence[cumem.Piece]) -> int:
    return sum(piece.nbytes for piece in pieces)
