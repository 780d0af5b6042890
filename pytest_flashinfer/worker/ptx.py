"""Small kernels of the harness's own, in PTX: the driver compiles them, and nothing done to torch keeps them away."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_flashinfer.worker import cudart

_MULTIPROCESSORS, _THREADS_EACH = 16, 39  # cudaDevAttr: their number, and the threads that one can hold
_BLOCK = 512  # divides the threads of every multiprocessor since Maxwell


class PtxKernel:
    """The kernel `entry` of `source`, with 64-bit arguments; it fills the card. Raises CudaError or OSError."""

    def __init__(self, source: bytes, entry: bytes, *arguments: int) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        for code in (
            driver.cuModuleLoadData(ctypes.byref(module), source),
            driver.cuModuleGetFunction(ctypes.byref(self._function), module, entry),
        ):
            if code:
                raise cudart.CudaError(code, f"the driver refused a kernel ({code})")
        counts = []
        for attribute in (_MULTIPROCESSORS, _THREADS_EACH):
            value = ctypes.c_int(0)
            cudart.library().cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0)
            counts.append(value.value)
        grid = counts[0] * (counts[1] // _BLOCK)
        self._launch: Any = driver.cuLaunchKernel
        self._values = [ctypes.c_uint64(value) for value in arguments]
        given = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, self._values))
        shape = [ctypes.c_uint(number) for number in (grid, 1, 1, _BLOCK, 1, 1, 0)]
        self._call = (self._function, *shape, ctypes.c_void_p(0), given, None)

    def __call__(self) -> None:
        """Launch it on the legacy default stream."""
        self._launch(*self._call)
