"""The one block of memory that the judge shares with one worker.

On the CPU it is a sealed memfd that both map. On a card it is a cudaMalloc of its own, opened by the worker through
CUDA IPC: torch's caching allocator would share whole segments, with whatever else lies in them. The judge allocates,
so it reads the bytes of its own memory, never an object that the worker made.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pytest_flashinfer.worker import cudart

if TYPE_CHECKING:
    from collections.abc import Mapping

_SMALLEST = 1 << 21
_LARGE = 1 << 27  # bytes of an arena from which on a call may leave much memory behind
_LITTLE = 1 << 28  # bytes that it may leave there all the same
_MANY = 16  # results of one item, twice as many as are ever held
_LIMITS = Path("/sys/fs/cgroup")
LARGE = 1 << 29  # bytes of an arena, or of a result, that another process may need while nobody calls
_EMPTY = torch.empty  # bound before foreign code could replace them
_AS_TENSOR = torch.as_tensor
_FROM_BUFFER = torch.frombuffer
_SET = torch.Tensor.set_
_STORAGE = torch.Tensor.untyped_storage
DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class MemoryShort(Exception):  # noqa: N818 - what happened
    """A device's memory does not suffice for the judge; one line."""


def give_back(most: int = 1 << 30, device: str = "cuda:0") -> None:
    """Free what torch holds of a card without using it, where that is more than `most` bytes.

    Several processes share a card, and what one of them only might need again another one lacks.
    """
    cuda: Any = torch.cuda
    if cuda.is_initialized():
        known = cuda.memory_stats_as_nested_dict(device)  # memory_reserved() takes a third of a millisecond
        reserved, allocated = (known[f"{what}_bytes"]["all"]["current"] for what in ("reserved", "allocated"))
        if reserved - allocated > most:
            cuda.empty_cache()


def roomy(nbytes: int) -> bool:
    """Say whether the host has the memory to hold many tensors of so many bytes, also where it limits this process."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        free = 1024 * int(available)
        with contextlib.suppress(OSError, ValueError):  # no such limit
            most, used = (int((_LIMITS / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
            free = min(free, most - used)
        return free > _MANY * nbytes
    return False


class Holder(Protocol):
    """Whoever has a block mapped."""

    def let_go(self, memory: Arena) -> None:
        """Unmap it."""


class Arena:
    """The judge's end: one block of bytes on `device` (`"cpu"` or `"cuda:N"`), grown by replacement.

    `data` is a uint8 tensor over the whole block. The address stays as long as the block is large enough, so that
    the same storage is used again with other contents.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.data = torch.empty(0, dtype=torch.uint8, device=device)
        self._pointer = 0
        self._fd = -1

    @property
    def nbytes(self) -> int:
        """Return the size of the block, 0 where there is none."""
        return self.data.numel()

    def reserve(self, nbytes: int) -> bool:
        """Have at least `nbytes`; returns whether the block is a new one, which the worker must map: see Worker.fit."""
        if nbytes <= self.data.numel():
            return False
        self.close()
        size = max(_SMALLEST, -(-nbytes // _SMALLEST) * _SMALLEST)
        if self.device == "cpu":
            self._fd = _sealed(size)
            self.data = torch.frombuffer(mmap.mmap(self._fd, size), dtype=torch.uint8)
        else:
            with torch.cuda.device(self.device):
                self._pointer = cudart.malloc(size)
            self.data = torch.as_tensor(cudart.Block(self._pointer, size), device=self.device)
            self.data.zero_()  # a truth may have lain here, and a solution is to see this
            torch.cuda.synchronize(self.device)
        return True

    def export(self) -> tuple[dict[str, Any], list[int]]:
        """Return the message and the descriptors by which `Memory.map` opens this block in the worker."""
        size = self.data.numel()
        if self.device == "cpu":
            return {"bytes": size, "fds": 1}, [self._fd]
        return {"bytes": size, "handle": cudart.share(self._pointer).hex()}, []

    def leave(self, worker: Holder) -> None:
        """Give a large block back for as long as nothing is asked of `worker`, which has it mapped."""
        if self.data.numel() > LARGE:
            worker.let_go(self)
            self.close()

    def close(self) -> None:
        """Give the block back; tensors over it must not be used any more."""
        self.data = torch.empty(0, dtype=torch.uint8, device=self.device)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._pointer:
            pointer, self._pointer = self._pointer, 0
            with contextlib.suppress(cudart.CudaError), torch.cuda.device(self.device):
                cudart.free(pointer)


def _sealed(size: int) -> int:
    """Return a memfd that nobody can resize: a shrunk one would kill the judge with SIGBUS."""
    fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


class Memory:
    """The worker's end: maps the judge's arena and makes tensors over parts of it."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.size = 0
        self.base = 0
        self._map: mmap.mmap | None = None
        self._pointer = 0

    def map(self, message: Mapping[str, Any], fds: list[int]) -> None:
        """Open the block that `Arena.export` described, in place of the last one."""
        self.unmap()
        self.size = int(message["bytes"])
        if fds:
            self._map = mmap.mmap(fds[0], self.size)
            os.close(fds[0])
            self.base = _FROM_BUFFER(self._map, dtype=torch.uint8).data_ptr()
            return
        self.device = "cuda:0"
        self.base = self._pointer = cudart.open_shared(bytes.fromhex(message["handle"]))

    def unmap(self) -> None:
        """Close the block; on the CPU it stays as long as tensors over it do."""
        self._map = None
        self.base = self.size = 0
        if self._pointer:
            pointer, self._pointer = self._pointer, 0
            cudart.synchronize()
            cudart.close_shared(pointer)

    def release(self) -> None:
        """Leave to other processes what a call on large inputs has used; to ask torch takes long for small ones."""
        if self.size > _LARGE:
            give_back(_LITTLE)

    def tensor(self, slot: Mapping[str, Any]) -> torch.Tensor:
        """Make a new tensor over `slot`: `at` and `room` in bytes, `dtype`, `size`, `stride` in elements.

        Its storage begins at the slot and includes the guard zone behind it, so that writing the whole storage shows.
        """
        at, room = slot["at"], slot["room"]
        if not room:  # nothing to lie over, and torch refuses a buffer of no bytes
            return _EMPTY(slot["size"], dtype=DTYPES[slot["dtype"]], device=self.device)
        if self._map is not None:
            flat = _FROM_BUFFER(self._map, dtype=torch.uint8, count=room, offset=at)
        else:
            flat = _AS_TENSOR(cudart.Block(self.base + at, room), device=self.device)
        made = _EMPTY(0, dtype=DTYPES[slot["dtype"]], device=self.device)
        return _SET(made, _STORAGE(flat), 0, slot["size"], slot["stride"])

    def address(self, slot: Mapping[str, Any]) -> int:
        """Return the address of a slot in this process."""
        return self.base + int(slot["at"])
