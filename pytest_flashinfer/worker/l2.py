"""What empties a card's L2 cache, so that each timed call starts from device memory.

It is emptied by reading. Filling a buffer would leave lines that have to be written back before others can take their
place, during the call that is timed and at its expense: on an H100 a product that reads 32 MiB of weights took 21.8 us
after a fill and 17.4 us after a read, a sum over 128 MiB 61.2 and 51.8 us, and 51.8 us when nothing came before it.
"""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_flashinfer.worker import cudart
from pytest_flashinfer.worker.ptx import PtxKernel

_L2_BYTES = 38  # cudaDevAttrL2CacheSize
_PERSISTING = 6  # cudaLimitPersistingL2CacheSize
_DEFAULT_L2 = 64 << 20
_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry sweep(.param .u64 buffer, .param .u64 pieces)
{
    .reg .pred %more, %never;
    .reg .u32 %thread, %block, %threads, %blocks, %a, %b, %c, %d, %mixed;
    .reg .u64 %base, %end, %piece, %step, %at;
    ld.param.u64 %base, [buffer];
    cvta.to.global.u64 %base, %base;
    ld.param.u64 %end, [pieces];
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %piece, %block, %threads;
    cvt.u64.u32 %at, %thread;
    add.u64 %piece, %piece, %at;
    mul.wide.u32 %step, %blocks, %threads;
    mov.u32 %mixed, 0;
NEXT:
    setp.lt.u64 %more, %piece, %end;
    @!%more bra DONE;
    shl.b64 %at, %piece, 4;
    add.u64 %at, %at, %base;
    ld.global.cg.v4.u32 {%a, %b, %c, %d}, [%at];
    xor.b32 %a, %a, %b;
    xor.b32 %c, %c, %d;
    xor.b32 %a, %a, %c;
    xor.b32 %mixed, %mixed, %a;
    add.u64 %piece, %piece, %step;
    bra NEXT;
DONE:
    setp.eq.u32 %never, %mixed, 0x5bd1e995;
    @%never st.global.u32 [%base], %mixed;
    ret;
}
\0"""  # the store, which never happens in a buffer of equal bytes, keeps the compiler from dropping the reads


class L2:
    """A buffer of twice the cache, at `pointer`: `empty` enqueues the reading, which leaves nothing else there."""

    def __init__(self, runtime: Any, index: int = 0) -> None:
        size = ctypes.c_int(0)
        runtime.cudaDeviceGetAttribute(ctypes.byref(size), _L2_BYTES, index)
        self.nbytes = 2 * (size.value or _DEFAULT_L2)
        self.pointer = cudart.malloc(self.nbytes)
        runtime.cudaMemset(ctypes.c_void_p(self.pointer), 0, ctypes.c_size_t(self.nbytes))
        self.empty = PtxKernel(_PTX, b"sweep", self.pointer, self.nbytes // 16)
        self._reset = runtime.cudaCtxResetPersistingL2Cache
        self._get_limit = runtime.cudaDeviceGetLimit
        self._set_limit = runtime.cudaDeviceSetLimit

    def release_persisting(self) -> None:
        """Take back lines that a solution set aside to outlive the flush (waits for the device where it did)."""
        limit = ctypes.c_size_t(0)
        self._get_limit(ctypes.byref(limit), _PERSISTING)
        if limit.value:
            self._reset()
            self._set_limit(_PERSISTING, 0)
