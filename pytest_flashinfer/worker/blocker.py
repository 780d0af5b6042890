"""A kernel that fills a card and does nothing for a while.

Launched on the caller's stream just before a call, it keeps every later kernel waiting, on whatever stream: work that
the call launched on a stream of its own then starts no earlier than the copy of the outputs that follows the call,
and an output that nobody waited for is still poison in that copy.
"""

from __future__ import annotations

from pytest_flashinfer.worker.ptx import PtxKernel

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
_NANOSECONDS = 150_000  # longer than a call takes to launch its kernels


def blocker() -> PtxKernel:
    """Return the kernel, which fills the card on the legacy default stream. Raises CudaError or OSError."""
    return PtxKernel(_PTX, b"hold", _NANOSECONDS)
