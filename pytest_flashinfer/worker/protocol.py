"""Length-framed JSON over a UNIX socket: the only language that judge and workers speak.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, an object at the top. Nothing is pickled, so
a frame can hold nothing but plain values; what is read is limited in size, nesting and number range, because the
other end may be a solution that writes to the socket itself. File descriptors travel from the judge to a worker only.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEADER = struct.Struct("!I")
FROM_WORKER = 1 << 23  # bytes of one frame; replies are facts, kernel names and a cut traceback
FROM_JUDGE = 1 << 26  # a build request carries sources
MAX_DEPTH = 12
MAX_NODES = 100_000
MAX_DIGITS = 20  # covers every 64-bit integer; longer ones cost quadratic time to parse
_CHUNK = 1 << 16
SOON = 2e-3  # seconds for which a card's processes look for an answer all the time: most come within
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

Message = dict[str, Any]


class ProtocolError(Exception):
    """What arrived is no frame of this protocol; the message says why, in one line."""


class Disconnected(Exception):  # noqa: N818 - an end, not always an error
    """The other end closed the socket."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return `message` as one frame; raises `ProtocolError` where it is larger than `FROM_JUDGE` bytes."""
    body = _ENCODER.encode(message).encode()
    if len(body) > FROM_JUDGE:
        raise ProtocolError(f"a message of {len(body)} bytes is over the limit of {FROM_JUDGE}")
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """Return the object in `body`; raises `ProtocolError` for anything outside the limits of this module."""
    try:
        value = _DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON object: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise ProtocolError("not a JSON object")
    _measure(value)
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("long integer")
    return int(digits)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_int=_integer, parse_float=_number)


def _measure(top: Message) -> None:
    """Raise `ProtocolError` where the tree is too deep or too large; a loop, so that depth costs no stack."""
    level: list[Any] = [top]
    nodes = 0
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise ProtocolError("too many values in one message")
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise ProtocolError("values nested too deeply")


def _children(value: object) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


class Channel:
    """One end of a socket, with a buffer for frames that arrive in pieces.

    `limit` bounds the frames that are read. Not thread-safe.
    """

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self.sock = sock
        self.limit = limit
        self._buffer = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self.sock.fileno()

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = (), timeout: float | None = None) -> None:
        """Write one frame, with descriptors beside it; raises `Disconnected`, or TimeoutError where none reads."""
        data = encode(message)
        self.sock.settimeout(timeout)
        try:
            sent = socket.send_fds(self.sock, [data], list(fds)) if fds else 0
            self.sock.sendall(data[sent:])
        except TimeoutError:
            raise
        except OSError as error:
            raise Disconnected(str(error)) from None

    def feed(self) -> bool:
        """Read what is there without waiting; returns whether there was anything. Raises `Disconnected` at the end.

        Descriptors that the other end may have sent are dropped by the kernel: none are asked for.
        """
        self.sock.settimeout(0.0)
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:
            raise Disconnected(str(error)) from None
        if not data:
            raise Disconnected("closed")
        self._buffer += data
        return True

    def take(self) -> Message | None:
        """Return the next whole frame of the buffer, or `None`; raises `ProtocolError`."""
        if len(self._buffer) < HEADER.size:
            return None
        (size,) = HEADER.unpack_from(self._buffer)
        if size > self.limit:
            raise ProtocolError(f"a frame that claims {size} bytes")
        end = HEADER.size + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[HEADER.size : end])
        del self._buffer[:end]
        return decode(body)

    def poll(self, seconds: float) -> Message | None:
        """Look for the next frame all the time, for so many seconds; `None` where it does not come.

        A processor that sleeps takes longer to wake up than a message takes, and is slow for a while afterwards.
        """
        deadline = time.monotonic() + seconds
        while (message := self.take()) is None and time.monotonic() < deadline:
            if not self.feed():
                os.sched_yield()
        return message

    @property
    def pending(self) -> bool:
        """Whether bytes wait that are not read as a frame yet."""
        return bool(self._buffer)

    def receive(self, max_fds: int = 0, soon: float = 0.0) -> tuple[Message, list[int]]:
        """Wait for the next frame, and the descriptors that its `fds` key announces; raises `Disconnected`.

        For the side that is told what to do and reads from the judge alone. For `soon` seconds it looks all the time.
        """
        deadline = time.monotonic() + soon
        self.sock.settimeout(0.0 if soon else None)
        while (message := self.take()) is None:
            try:
                data, fds, _flags, _address = socket.recv_fds(self.sock, _CHUNK, max_fds)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    os.sched_yield()
                else:
                    self.sock.settimeout(None)
                continue
            self._fds += fds
            if not data:
                raise Disconnected("closed")
            self._buffer += data
        count = int(message.pop("fds", 0))
        fds, self._fds = self._fds[:count], self._fds[count:]
        return message, fds
