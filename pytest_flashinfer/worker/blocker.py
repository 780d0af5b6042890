"""A kernel that fills a card and does nothing for a while.

Launched on the caller's stream just before a call, it keeps every later kernel waiting, on whatever stream: work that
the call launched on a stream of its own then starts no earlier than the copy of the outputs that follows the call,
and an output that nobody waited for is still poison in that copy.
"""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_flashinfer.worker import cudart

_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry hold(.param .u64 nanoseconds)
{
    .reg .pred %again;
    .reg .u64 %start, %now, %past, %length;
    ld.param.u64 %length, [nanoseconds];
    mov.u64 %start, %globaltimer;
SPIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %past, %now, %start;
    setp.lt.u64 %again, %past, %length;
    @%again bra SPIN;
    ret;
}
\0"""
_MULTIPROCESSORS, _THREADS_EACH = 16, 39  # cudaDevAttr: their number, and the threads that one can hold
_BLOCK = 512  # divides the threads of every multiprocessor since Maxwell
_NANOSECONDS = 150_000  # longer than a call takes to launch its kernels


class Blocker:
    """Compiled once for each process, by the driver; raises CudaError or OSError where that fails."""

    def __init__(self) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        runtime = cudart.library()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        for code in (
            driver.cuModuleLoadData(ctypes.byref(module), _PTX),
            driver.cuModuleGetFunction(ctypes.byref(self._function), module, b"hold"),
        ):
            if code:
                raise cudart.CudaError(code, f"the driver refused a kernel ({code})")
        counts = []
        for attribute in (_MULTIPROCESSORS, _THREADS_EACH):
            value = ctypes.c_int(0)
            runtime.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0)
            counts.append(value.value)
        self._grid = counts[0] * (counts[1] // _BLOCK)
        self._launch: Any = driver.cuLaunchKernel
        self._length = ctypes.c_uint64(_NANOSECONDS)
        self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._length))

    def __call__(self) -> None:
        """Fill the card, on the legacy default stream."""
        shape = [ctypes.c_uint(number) for number in (self._grid, 1, 1, _BLOCK, 1, 1, 0)]
        self._launch(self._function, *shape, ctypes.c_void_p(0), self._arguments, None)
