"""The few calls of the CUDA runtime that torch does not expose, by ctypes on the library that torch has loaded."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

_DEVICE_TO_DEVICE = 3
_TAIL = 1 << 20  # bytes of a large copy that go first: what a kernel writes last


class CudaError(RuntimeError):
    """A call of the CUDA runtime failed; `code` is its cudaError_t."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"CUDA error: {message}")


@functools.cache
def library() -> ctypes.CDLL:
    """Return the libcudart of this process; torch must be imported. Raises OSError where there is none."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.rpartition(" ")[2]
        if "libcudart" in path:
            loaded = ctypes.CDLL(path)
            loaded.cudaGetErrorString.restype = ctypes.c_char_p
            return loaded
    raise OSError("no libcudart is loaded: this torch is a build without CUDA")


def _check(code: int) -> None:
    if code:
        library().cudaGetLastError()
        raise CudaError(code, library().cudaGetErrorString(code).decode(errors="replace"))


def malloc(nbytes: int) -> int:
    """Allocate device memory of its own, outside every caching allocator; returns the pointer."""
    pointer = ctypes.c_void_p()
    _check(library().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(nbytes)))
    return pointer.value or 0


def synchronize() -> None:
    """Wait for all work of the current device; raises CudaError for what failed meanwhile."""
    _check(library().cudaDeviceSynchronize())


def lost() -> str:
    """Return the sticky error of this process's context, after which only a new process helps, or ""."""
    try:
        library().cudaGetLastError()  # forget an error that is not sticky
        synchronize()
    except CudaError as error:
        return str(error)
    return ""


class Copier:
    """Copies on the caller's (legacy default) stream, bound before foreign code could replace anything in torch."""

    def __init__(self) -> None:
        self._copy: Any = library().cudaMemcpyAsync

    def __call__(self, target: int, source: int, nbytes: int) -> None:
        """Enqueue a copy of `nbytes` from device address `source` to `target` on stream 0, the end first."""
        tail = min(_TAIL, nbytes // 2)
        for start, size in ((nbytes - tail, tail), (0, nbytes - tail)):
            if size:
                arguments = (ctypes.c_void_p(target + start), ctypes.c_void_p(source + start), ctypes.c_size_t(size))
                _check(self._copy(*arguments, ctypes.c_int(_DEVICE_TO_DEVICE), ctypes.c_void_p(0)))


class Block:
    """Device memory at a pointer, as an object that torch wraps without a copy."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }
