"""Memory of a card that processes share piece by piece, by the driver's virtual memory management and ctypes.

A piece is physical memory; it is told to another process by a file descriptor, and pieces are mapped one behind the
other wherever an address is free. A block from cudaMalloc could only be shared as a whole.
Source: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker.cudart import CudaError

if TYPE_CHECKING:
    from collections.abc import Sequence

GRANULE = 1 << 21  # bytes: the driver's own on all cards so far, of which every size is a multiple
_PINNED, _FILE_DESCRIPTOR, _ON_DEVICE, _READ_WRITE = 1, 1, 1, 3  # values of the driver's enumerations


class _Location(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("device", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@functools.cache
def _driver() -> Any:
    loaded = ctypes.CDLL("libcuda.so.1")
    size, handle, address = ctypes.c_size_t, ctypes.c_ulonglong, ctypes.c_ulonglong
    loaded.cuMemCreate.argtypes = (ctypes.c_void_p, size, ctypes.c_void_p, ctypes.c_ulonglong)
    loaded.cuMemRelease.argtypes = (handle,)
    loaded.cuMemExportToShareableHandle.argtypes = (ctypes.c_void_p, handle, ctypes.c_int, ctypes.c_ulonglong)
    loaded.cuMemImportFromShareableHandle.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    loaded.cuMemAddressReserve.argtypes = (ctypes.c_void_p, size, size, address, ctypes.c_ulonglong)
    loaded.cuMemAddressFree.argtypes = (address, size)
    loaded.cuMemMap.argtypes = (address, size, size, handle, ctypes.c_ulonglong)
    loaded.cuMemUnmap.argtypes = (address, size)
    loaded.cuMemSetAccess.argtypes = (address, size, ctypes.c_void_p, size)
    return loaded


def _do(name: str, *arguments: Any) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise CudaError(code, f"{(text.value or b'?').decode(errors='replace')} ({name})")


def rounded(nbytes: int) -> int:
    """Return the size of the smallest piece that holds so many bytes."""
    return max(1, -(-nbytes // GRANULE)) * GRANULE


class Piece:
    """Physical memory of a card, gone when nobody has it mapped or open any more; `fd` tells it to other processes.

    Raises CudaError, with code 2 where there is not enough memory.
    """

    def __init__(self, nbytes: int, device: int) -> None:
        self.nbytes = rounded(nbytes)
        what = _Properties(_PINNED, _FILE_DESCRIPTOR, _Location(_ON_DEVICE, device))
        handle, fd = ctypes.c_ulonglong(), ctypes.c_int()
        _do("cuMemCreate", ctypes.byref(handle), self.nbytes, ctypes.byref(what), 0)
        self._handle = handle.value
        try:
            _do("cuMemExportToShareableHandle", ctypes.byref(fd), self._handle, _FILE_DESCRIPTOR, 0)
        finally:
            _do("cuMemRelease", self._handle)
        self.fd = fd.value

    def close(self) -> None:
        """Tell nobody else."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class VirtualMapping:
    """Pieces, known by descriptor and size, at one address of this process, the first of them first."""

    def __init__(self, pieces: Sequence[tuple[int, int]], device: int) -> None:
        self.nbytes = sum(size for _, size in pieces)
        address = ctypes.c_ulonglong()
        _do("cuMemAddressReserve", ctypes.byref(address), self.nbytes, 0, 0, 0)
        self.pointer, self._mapped = address.value, 0
        try:
            for fd, size in pieces:
                self._add(fd, size)
            access = _Access(_Location(_ON_DEVICE, device), _READ_WRITE)
            _do("cuMemSetAccess", self.pointer, self.nbytes, ctypes.byref(access), 1)
        except CudaError:
            self.close()
            raise

    def _add(self, fd: int, size: int) -> None:
        handle = ctypes.c_ulonglong()
        _do("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _FILE_DESCRIPTOR)
        try:
            _do("cuMemMap", self.pointer + self._mapped, size, 0, handle, 0)
        finally:
            _do("cuMemRelease", handle)  # the mapping holds it
        self._mapped += size

    def close(self) -> None:
        """Unmap them; nothing on the card may use them any more."""
        if self._mapped:
            _do("cuMemUnmap", self.pointer, self._mapped)
        if self.pointer:
            _do("cuMemAddressFree", self.pointer, self.nbytes)
        self.pointer = self._mapped = 0
