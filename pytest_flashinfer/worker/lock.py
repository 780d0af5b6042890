"""A card is timed by one process of the host at a time, whichever run it belongs to."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_SECONDS: Final = 1800.0  # of waiting for a turn: no measurement takes so long, but many may be ahead
_POLL: Final = 0.001
_EVERYBODYS: Final = Path("/tmp")  # noqa: S108 - the folder that is made there is guarded like this one


class LockedOut(Exception):  # noqa: N818 - what happened
    """A card was not free for a long time; one line that says who holds it."""


def shared_folder() -> Path:
    """Return the folder that all runs and users of this host share, wherever each keeps its own temporary files."""
    base = _EVERYBODYS if os.access(_EVERYBODYS, os.W_OK) else Path(tempfile.gettempdir())
    folder = base / "pytest-flashinfer-locks"
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)  # past the umask: like the folder for temporary files, it is for everybody
    return folder


@contextlib.contextmanager
def card_lock(card: str, folder: Path | None = None, most: float = MOST_SECONDS) -> Iterator[float]:
    """Hold the card's lock during the body; yields the seconds that were waited.

    `card` is the UUID, or any name that all processes give it. The lock goes when its holder ends, however it ends.
    Raises LockedOut after `most` seconds, and where the lock cannot be made.
    """
    handle = opened(card, folder)
    try:
        waited = hold(handle, card, most)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield waited
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # closing alone does not where a process was forked off meanwhile
        os.close(handle)


def opened(name: str, folder: Path | None = None) -> int:
    """Open the lock of that name, which nobody holds through this descriptor yet. Raises LockedOut."""
    path = f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"
    try:
        return _open((folder or shared_folder()) / path)
    except OSError as error:
        raise LockedOut(f"{error.filename} cannot be opened: {error.strerror}") from error


def hold(handle: int, card: str, most: float, *, share: bool | None = False) -> float:
    """Take the lock, with others where it is to `share`; `None` lets go of it. Returns the seconds that were waited.

    Raises LockedOut after `most` seconds.
    """
    how = fcntl.LOCK_UN if share is None else fcntl.LOCK_SH if share else fcntl.LOCK_EX
    start = time.monotonic()
    while not _taken(handle, how):
        if time.monotonic() - start > most:
            raise LockedOut(f"{card} was not free for {most:g} s: {_holder(handle)} uses it")
        time.sleep(_POLL)
    return time.monotonic() - start


def free(handle: int) -> bool:
    """Whether nobody has the lock alone."""
    if not _taken(handle, fcntl.LOCK_SH):
        return False
    _taken(handle, fcntl.LOCK_UN)
    return True


def _open(path: Path) -> int:
    """Open a lock file of any user; nobody's link is followed."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)  # not to be created: of another user's file that is forbidden in such a folder
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:  # another process was faster
        return os.open(path, flags)
    os.fchmod(handle, 0o666)  # past the umask: other users take their turns with it
    return handle


def _taken(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(handle: int) -> str:
    text = os.pread(handle, 32, 0).decode(errors="replace").strip()
    return f"process {text}" if text.isdecimal() else "another process"
