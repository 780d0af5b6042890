"""Records of device activity from CUPTI, by ctypes on the libcupti that torch ships.

The offsets below hold for CUPTI's API versions 18 to 28 (CUDA 12) and 130000 to 130500 (CUDA 13); a version outside
these families is refused rather than read wrongly.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
from pathlib import Path
from typing import Any, NamedTuple

_MEMCPY, _MEMSET, _KERNEL, _PEER_COPY = 1, 2, 10, 22  # activity kinds; nodes of a launched graph come as these too
KINDS = (_KERNEL, _MEMCPY, _MEMSET, _PEER_COPY)
_FLUSH_FORCED = 1
_PER_THREAD_BUFFERS = 9  # an attribute, since CUDA 12.3
_BUFFER_BYTES = 1 << 20  # about 5,000 records
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
# kind, a memset's value or a copy's kind, size in bytes, start and end in ns; then the correlation, and of a kernel a
# pointer to its mangled name.
_FIELDS = {
    _KERNEL: struct.Struct("<IIQQQ60xI8xQ"),
    _MEMCPY: struct.Struct("<IIQQQ12xI"),
    _MEMSET: struct.Struct("<IIQQQ12xI"),
    _PEER_COPY: struct.Struct("<IIQQQ28xI"),
}
_LONGEST = 112  # as much of a record as is read

_Request = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Complete = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class CuptiError(RuntimeError):
    """CUPTI is missing, of an unknown version, or taken by another client of this process."""


class Record(NamedTuple):
    """One device activity: times in ns on CUPTI's clock, `size` in bytes, `value` of a memset.

    `correlation` rises with every CUDA call of the process, whatever its thread; the nodes of a graph carry that of
    the graph's launch.
    """

    start: int
    end: int
    correlation: int
    name: str
    size: int = 0
    value: int = -1  # of a memset; -1 for the other kinds


class Tracer:
    """Collects activity records between `arm` and `drain`. One per process: CUPTI keeps one set of callbacks."""

    def __init__(self, path: str | None = None) -> None:
        try:
            self._library: Any = ctypes.CDLL(path or find())
        except OSError as error:
            raise CuptiError(str(error)) from error
        self._check_version()
        names = ("RegisterCallbacks", "Enable", "Disable", "FlushAll", "GetNextRecord", "GetNumDroppedRecords")
        # Resolved now: what is looked up later could have been replaced by then.
        self._calls = {name: getattr(self._library, f"cuptiActivity{name}") for name in names}
        self._next = self._calls["GetNextRecord"]
        self._next.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))
        self._free: list[Any] = [ctypes.create_string_buffer(_BUFFER_BYTES) for _ in range(2)]
        self._in_use: dict[int, Any] = {}
        self._full: list[tuple[int, int]] = []
        self._callbacks = (_Request(self._requested), _Complete(self._completed))
        # With one buffer for all threads it is this module's own launches that ask for the next buffer. A thread
        # of the solution would wait for the GIL then, while C++ code that holds the GIL may wait for that thread.
        size, off = ctypes.c_size_t(1), ctypes.c_uint8(0)
        self._library.cuptiActivitySetAttribute(_PER_THREAD_BUFFERS, ctypes.byref(size), ctypes.byref(off))

    def arm(self) -> None:
        """Start collecting. Raises `CuptiError` with CUPTI's own words where another client is in the way."""
        self._check(self._calls["RegisterCallbacks"](*self._callbacks))
        for kind in KINDS:
            code = self._calls["Enable"](kind)
            if code:
                self.disarm()
                self._check(code)

    def disarm(self) -> None:
        """Stop collecting."""
        for kind in KINDS:
            self._calls["Disable"](kind)

    def drain(self) -> tuple[list[Record], int]:
        """Return the records since the last drain, and how many CUPTI had to drop; the device must be idle."""
        self._check(self._calls["FlushAll"](_FLUSH_FORCED))
        full, self._full = self._full, []
        records = [record for address, valid in full for record in self._walk(address, valid)]
        self._free += [self._in_use.pop(address) for address, _ in full]
        dropped = ctypes.c_size_t(0)
        self._check(self._calls["GetNumDroppedRecords"](None, 0, ctypes.byref(dropped)))
        return records, dropped.value

    def _walk(self, address: int, valid: int) -> list[Record]:
        raw = ctypes.string_at(address, valid) + bytes(_LONGEST)  # the last record may be shorter than the longest
        records, pointer = [], ctypes.c_void_p(None)
        reference = ctypes.byref(pointer)
        while self._next(address, valid, reference) == 0:
            record = parse(raw, (pointer.value or address) - address)
            if record is not None:
                records.append(record)
        return records

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        space = self._free.pop() if self._free else ctypes.create_string_buffer(_BUFFER_BYTES)
        address = ctypes.addressof(space)
        self._in_use[address] = space
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0

    def _completed(self, _context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
        self._full.append((buffer, valid))

    def _check_version(self) -> None:
        version = ctypes.c_uint32(0)
        self._check(self._library.cuptiGetVersion(ctypes.byref(version)))
        if not (18 <= version.value < 100 or 130000 <= version.value < 140000):  # noqa: PLR2004 - see the module
            raise CuptiError(f"CUPTI's API version {version.value} is not known")

    def _check(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._library.cuptiGetResultString(code, ctypes.byref(text))
            raise CuptiError(f"{(text.value or b'CUPTI error').decode()} ({code})")


@functools.cache
def tracer() -> Tracer:
    """Return this process's tracer; torch must be imported. Raises `CuptiError`."""
    return Tracer()


def find(maps: str | None = None) -> str:
    """Return the path of the libcupti to use: that which torch has loaded, or else one beside torch.

    Triton brings another, of its own: two in one process would disturb each other. Raises `CuptiError`.
    """
    text = _maps() if maps is None else maps
    loaded = {line.rpartition(" ")[2] for line in text.splitlines() if "libcupti.so" in line}
    for path in sorted(loaded):
        if "/triton/" not in path:
            return path
    import torch

    site = Path(torch.__file__).parents[1]
    for pattern in ("nvidia/cu1[23]/lib", "nvidia/cuda_cupti/lib", "torch/lib"):
        for found in sorted(site.glob(f"{pattern}/libcupti*.so*")):
            return str(found)
    raise CuptiError("no libcupti is loaded and none lies beside torch")


def _maps() -> str:
    with contextlib.suppress(OSError):  # a sandbox may hide /proc
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return ""


def parse(raw: bytes, offset: int = 0) -> Record | None:
    """Read the record at `offset` of a buffer, or `None` where it is of another kind or has no times."""
    fields = _FIELDS.get(raw[offset])
    if fields is None:
        return None
    kind, word, size, start, end, correlation, *name = fields.unpack_from(raw, offset)
    if not start or end < start:
        return None
    if kind == _KERNEL:
        return Record(start, end, correlation, demangle(ctypes.string_at(name[0])) if name[0] else "kernel")
    if kind == _MEMSET:
        return Record(start, end, correlation, "memset", size, word)
    return Record(start, end, correlation, f"memcpy {_COPIES.get(word & 255, '')}".strip(), size)


@functools.lru_cache(maxsize=4096)
def demangle(name: bytes) -> str:
    """Return a C++ symbol as its author wrote it, or as it is where it is none."""
    plain = name.decode(errors="replace")
    try:
        undo, free = _demangler()
    except OSError:
        return plain
    status = ctypes.c_int(0)
    pointer = undo(name, None, None, ctypes.byref(status))
    if not pointer:
        return plain
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        free(ctypes.c_void_p(pointer))


@functools.cache
def _demangler() -> tuple[Any, Any]:
    library = ctypes.CDLL("libstdc++.so.6")
    undo = library["__cxa_demangle"]
    undo.restype = ctypes.c_void_p
    undo.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return undo, library.free
