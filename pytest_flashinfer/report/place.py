"""Where a report is to lie: what stands in its way is found before a run begins, not when hours are to be written."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def obstacle(path: Path, what: str = "", is_own: Callable[[Path], bool] | None = None) -> str:
    """Return in one line why a file cannot or should not be written, or the empty string; makes the folders it needs.

    A file that is there is replaced if `is_own` knows it as `what`: a slip must not cost somebody a kernel. Without
    `is_own` anything is written over.
    """
    try:
        if path.is_dir():
            return f"{path} is a folder: name a file"
        if path.exists():
            if is_own is None:
                return ""
            if not path.is_file() or not (path.stat().st_size == 0 or is_own(path)):
                return f"{path} is there and is no {what}: name another file, or remove that one"
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            return ""
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
