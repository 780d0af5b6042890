"""What a card's clocks enqueue around a call, and read of it: marks, events, head starts and the L2 flush."""

from __future__ import annotations

import ctypes
import functools
import random
from typing import Any

import torch

from pytest_flashinfer.worker import cudart
from pytest_flashinfer.worker.l2 import L2
from pytest_flashinfer.worker.marks import Mark

_CLOCK_RATE = 13  # cudaDevAttrClockRate, in kHz
_DEFAULT_RATE = 1_500_000
_STEPS = 1 << 14  # marks are memsets that differ in size by 4 bytes; this many sizes are in use
_NULL = 1e-6  # what a kernel that does nothing takes; events around it read some 2.5 us more


class Clockwork:
    """What the clocks of one card share, with the functions of the runtime resolved before any solution is imported.

    `flush_seconds` is how long the L2 flush takes, `null_seconds` what events add to the time of what they surround.
    """

    def __init__(self, index: int) -> None:
        self.runtime: Any = ctypes.CDLL(cudart.library()._name)  # noqa: SLF001 - a handle of our own, with types
        pointer = ctypes.c_void_p
        self.runtime.cudaMemsetAsync.argtypes = (pointer, ctypes.c_int, ctypes.c_size_t, pointer)
        self.runtime.cudaEventRecord.argtypes = (pointer, pointer)
        self.runtime.cudaEventElapsedTime.argtypes = (ctypes.POINTER(ctypes.c_float), pointer, pointer)
        self.synchronize = self.runtime.cudaDeviceSynchronize
        self._record = self.runtime.cudaEventRecord
        self._elapsed = self.runtime.cudaEventElapsedTime
        self._memset = self.runtime.cudaMemsetAsync
        self.l2 = L2(self.runtime, index)
        self.events = [self._event() for _ in range(4)]
        rate = ctypes.c_int(0)
        self.runtime.cudaDeviceGetAttribute(ctypes.byref(rate), _CLOCK_RATE, index)
        self.hertz = 1e3 * (rate.value or _DEFAULT_RATE)
        self.value = random.SystemRandom().randrange(1, 256)  # never 0, the byte that everybody fills with
        self._serial = 0
        self._sleep = torch.cuda._sleep  # noqa: SLF001 - the only kernel in torch that takes a time and touches nothing
        self.flush_seconds, self.null_seconds = self._calibrate()

    def new_mark(self) -> Mark:
        """Return the sizes of the next call's marks; no two calls of a batch share one."""
        first, self._serial = self._serial, self._serial + 3
        before, after, closed = (4 + 4 * ((first + role) % _STEPS) for role in range(3))
        return Mark(before, after, closed)

    def mark(self, size: int) -> None:
        """Enqueue a mark on the caller's stream."""
        self._memset(self.l2.pointer, self.value, size, None)

    def spin(self, seconds: float) -> None:
        """Enqueue a kernel that keeps one block busy, on torch's current stream."""
        self._sleep(int(seconds * self.hertz))  # type: ignore[no-untyped-call]

    def record(self, event: int) -> None:
        """Enqueue an event on the caller's stream."""
        self._record(event, None)

    def elapsed(self, first: int, second: int) -> float:
        """Return the seconds between two events that have happened."""
        milliseconds = ctypes.c_float(0)
        self._elapsed(ctypes.byref(milliseconds), self.events[first], self.events[second])
        return milliseconds.value * 1e-3

    def _calibrate(self) -> tuple[float, float]:
        readings = []
        for _ in range(4):
            self.record(self.events[0])
            self.l2.empty()
            self.record(self.events[1])
            self.spin(0.0)
            self.record(self.events[2])
            self.synchronize()
            readings.append((self.elapsed(0, 1), self.elapsed(1, 2)))
        return min(flush for flush, _ in readings), max(min(null for _, null in readings) - _NULL, 0.0)

    def _event(self) -> int:
        event = ctypes.c_void_p()
        self.runtime.cudaEventCreate(ctypes.byref(event))
        return event.value or 0


@functools.cache
def clockwork(index: int) -> Clockwork:
    """Return the clockwork of a card, made once."""
    return Clockwork(index)
