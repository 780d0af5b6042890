"""What a worker prints: read from a pipe while the judge waits, kept in bounds."""

from __future__ import annotations

import os
import re
import select
import time

HEAD, TAIL = 32_768, 32_768  # bytes kept of the beginning and of the end
_CHUNK = 1 << 16
_SETTLED, _QUIET = 0.1, 0.03  # seconds
_CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]|[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return `text` with control characters spelled out, and halves of characters, which no terminal takes.

    It is printed to a terminal, and others wrote it.
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n").replace("\r", "\n"))


class Log:
    """The reading end of a worker's stdout and stderr. However much is written, memory stays bounded."""

    def __init__(self) -> None:
        self._read, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read, False)
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._read

    def feed(self) -> None:
        """Read what is there, at most 1 MiB, so that a flood cannot keep the judge here."""
        for _ in range(16):
            try:
                data = os.read(self._read, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.closed = True
                return
            room = HEAD - len(self._head)
            self._head += data[:room]
            self._tail += data[room:]
            surplus = len(self._tail) - TAIL
            if surplus > 0:
                del self._tail[:surplus]
                self._dropped += surplus

    def settle(self) -> None:
        """Read until nothing more comes for a moment, for a tenth of a second at most."""
        deadline = time.monotonic() + _SETTLED
        while not self.closed and time.monotonic() < deadline and select.select([self._read], [], [], _QUIET)[0]:
            self.feed()

    def take(self) -> str:
        """Return what was printed since the last call, its middle cut out where it is long."""
        self.feed()
        gap = f"\n... {self._dropped} bytes left out ...\n".encode() if self._dropped else b""
        text = bytes(self._head) + gap + bytes(self._tail)
        self._head.clear()
        self._tail.clear()
        self._dropped = 0
        return printable(text.decode(errors="replace"))

    def close(self) -> None:
        """Close both ends."""
        if self._read >= 0:
            os.close(self._read)
            self._read = -1
        self.close_write_end()

    def close_write_end(self) -> None:
        """Close the end that the worker has its own copy of."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1
