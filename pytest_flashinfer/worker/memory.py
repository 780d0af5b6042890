"""The worker's end of the block of memory that the judge shares with it (arena.py), and what memory there is."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.worker import cudart, cumem

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGE = 1 << 27  # bytes of an arena from which on a call may leave much memory behind
_LITTLE = 1 << 28  # bytes that it may leave there all the same
_MANY = 16  # results of one item, twice as many as are ever held
_LIMITS = Path("/sys/fs/cgroup")
_KNOWN = 256  # places of the arena that are kept in mind: those of some layouts
MOST_PIECES = 64  # of one block; there are some sixteen at the most
LARGE = 1 << 29  # bytes of an arena, or of a result, that another process may need while nobody calls
_CUDA_OUT_OF_MEMORY = 2  # of the runtime and of the driver
_SHORTAGE = re.compile(r"(CUDA error|CUDA driver error|Triton Error \[CUDA\]): .*out of memory", re.IGNORECASE)
_RAISED = {RuntimeError, getattr(torch, "AcceleratorError", RuntimeError)}  # by a launch; the second by newer torch
_EMPTY = torch.empty  # bound before foreign code could replace them
_AS_TENSOR = torch.as_tensor
_FROM_BUFFER = torch.frombuffer
_SET = torch.Tensor.set_
_STORAGE = torch.Tensor.untyped_storage
_WHERE = torch.UntypedStorage.data_ptr
DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class MemoryShort(Exception):  # noqa: N818 - what happened
    """A device's memory does not suffice for the judge; one line."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of this process says that a card's memory does not suffice, as torch, CUDA and Triton say it.

    That of the host is another matter, and so is what an error of another kind says of memory.
    """
    if isinstance(error, cudart.CudaError):
        return error.code == _CUDA_OUT_OF_MEMORY
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return type(error) in _RAISED and _SHORTAGE.match(str(error)) is not None


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


class Memory:
    """The worker's end: maps the judge's arena and makes tensors over parts of it."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.size = 0
        self.base = 0
        self._map: mmap.mmap | None = None
        self._pieces: cumem.VirtualMapping | None = None
        self._known: dict[tuple[int, int], torch.UntypedStorage] = {}  # by place: to make one takes a card's host long

    def map(self, message: Mapping[str, Any], fds: list[int]) -> None:
        """Open the block that `Arena.export` described, in place of the last one."""
        self.unmap()
        self.size = sum(message["bytes"])
        try:
            if message["host"]:
                self._map = mmap.mmap(fds[0], self.size)
                self.base = _FROM_BUFFER(self._map, dtype=torch.uint8).data_ptr()
            else:
                self.device = "cuda:0"
                self._pieces = cumem.VirtualMapping(list(zip(fds, message["bytes"], strict=True)), 0)
                self.base = self._pieces.pointer
        finally:
            for fd in fds:
                os.close(fd)

    def unmap(self) -> None:
        """Close the block; on the CPU it stays as long as tensors over it do."""
        self._known.clear()
        self._map = None
        self.base = self.size = 0
        if self._pieces is not None:
            pieces, self._pieces = self._pieces, None
            cudart.synchronize()
            pieces.close()

    def release(self) -> None:
        """Leave to other processes what a call on large inputs has used; to ask torch takes long for small ones."""
        if self.size > _LARGE:
            give_back(_LITTLE)

    def tensor(self, slot: Mapping[str, Any]) -> torch.Tensor:
        """Make a new tensor over `slot`: `at` and `room` in bytes, `dtype`, `size`, `stride` in elements.

        Its storage begins at the slot and includes the guard zone behind it, so that writing the whole storage shows.
        """
        place = slot["at"], slot["room"]
        made = _EMPTY(slot["size"] if not slot["room"] else 0, dtype=DTYPES[slot["dtype"]], device=self.device)
        if not slot["room"]:  # nothing to lie over, and torch refuses a buffer of no bytes
            return made
        storage = self._known.get(place)
        if storage is None or _WHERE(storage) != self.base + place[0]:  # a solution has put it elsewhere
            if len(self._known) >= _KNOWN:
                self._known.clear()
            storage = self._known[place] = self._storage(*place)
        return _SET(made, storage, 0, slot["size"], slot["stride"])

    def _storage(self, at: int, room: int) -> torch.UntypedStorage:
        if self._map is not None:
            return _STORAGE(_FROM_BUFFER(self._map, dtype=torch.uint8, count=room, offset=at))
        return _STORAGE(_AS_TENSOR(cudart.Block(self.base + at, room), device=self.device))

    def address(self, slot: Mapping[str, Any]) -> int:
        """Return the address of a slot in this process."""
        return self.base + int(slot["at"])
