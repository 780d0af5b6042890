"""Adding lines to files that several processes may add to at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Open a file for reading and appending, made with its folders where it is absent, while nobody else has it so.

    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def write(handle: int, data: bytes) -> None:
    """Write all of the data, on disk when this returns. Raises OSError."""
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def append_once(path: Path, line: bytes, key: Callable[[bytes], object] = bytes) -> bool:
    """Append a line, on one of its own, unless the file has one of the same key; say whether it was appended.

    Raises OSError.
    """
    wanted = key(line)
    with locked(path) as handle:
        with os.fdopen(os.dup(handle), "rb") as file:
            file.seek(0)
            last = b"\n"
            for last in file:
                if key(last.rstrip(b"\r\n")) == wanted:
                    return False
        write(handle, (b"" if last.endswith(b"\n") else b"\n") + line + b"\n")
    return True
