"""Reading files that strangers wrote: never a pipe, never without a limit, never an exception."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 64 << 20
BOM = b"\xef\xbb\xbf"


def refuse(path: Path) -> str | None:
    """Say why a path should not be opened: reading a pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        return f"cannot be read: {reason_of(error)}"
    return None if stat.S_ISREG(mode) else "not a regular file"


def reason_of(error: OSError | ValueError) -> str:
    """Say what the operating system said, without the path: a fault names it already; and what to do about it."""
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return f"{reason}: let this user read it, as with chmod a+rX" if isinstance(error, PermissionError) else reason


def enter(path: Path) -> None:
    """See that a path is there and, where it is a folder, that its files can be found. Raises OSError."""
    if stat.S_ISDIR(path.stat().st_mode):
        with os.scandir(path):
            pass
        try:
            os.stat(os.path.join(path, os.curdir))  # noqa: PTH116, PTH118 - pathlib drops the dot
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from None


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes | str:
    """Read a whole regular file of at most `limit` bytes, or say in one sentence why not."""
    reason = refuse(path)
    if reason:
        return reason
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        return f"cannot be read: {reason_of(error)}"
    return data if len(data) <= limit else f"larger than {_size(limit)}: too large to be read as one document"


def _size(limit: int) -> str:
    return f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"


def decode(data: bytes) -> tuple[str, str | None]:
    """Decode UTF-8; the second part is a note or, after an empty text, the reason why this is not text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "", "UTF-16 text: save it as UTF-8"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return "", f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; save it as UTF-8"
    if data.startswith(BOM):
        return text[1:], "starts with a UTF-8 byte-order mark, which was skipped"
    return text, None


def read_text(path: Path, limit: int = MAX_BYTES) -> tuple[str | None, str | None]:
    """Read a whole file as UTF-8: the text, and the reason where it is `None`."""
    data = read_bytes(path, limit)
    if isinstance(data, str):
        return None, data
    text, remark = decode(data)
    return (None, remark) if remark and not text and data != BOM else (text, None)
