"""What empties a card's L2 cache, so that each timed call starts from device memory."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_flashinfer.worker import cudart

_L2_BYTES = 38  # cudaDevAttrL2CacheSize
_PERSISTING = 6  # cudaLimitPersistingL2CacheSize
_DEFAULT_L2 = 64 << 20


class L2:
    """A scratch buffer of twice the cache, at `pointer`: filling its `nbytes` leaves nothing else behind."""

    def __init__(self, runtime: Any, index: int = 0) -> None:
        size = ctypes.c_int(0)
        runtime.cudaDeviceGetAttribute(ctypes.byref(size), _L2_BYTES, index)
        self.nbytes = 2 * (size.value or _DEFAULT_L2)
        self.pointer = cudart.malloc(self.nbytes)
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
