"""The one exception of this floor, and the wording that its one-line messages share."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pytest_flashinfer.data.raised import traced

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_LONGEST = 400  # characters of a one-line message; the log holds the rest
_SAID = 240  # of them, at most, are what an exception says: where it came from stands behind


class BuildError(Exception):
    """A solution could not be turned into a callable.

    `message` is one line that says what went wrong, where, and what to do; `log` holds the compiler's output or the
    traceback in full.
    """

    def __init__(self, message: str, log: str = "") -> None:
        self.message = one_line(message)
        self.log = log
        super().__init__(self.message)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """`text` on one line, cut to a readable length."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def describe(error: BaseException) -> str:
    """Type and message of an exception that foreign code raised, on one line; never raises itself."""
    lines = traceback.format_exception_only(type(error), error)  # a SyntaxError's source comes first, notes come last
    return one_line(next((line for line in lines if not line.startswith(" ")), lines[-1]), _SAID)


def place(error: BaseException, folder: Path) -> str:
    """`file:line` of the last frame of `error` inside `folder`, or the empty string where there is none."""
    root = f"{folder.resolve()}/"
    if isinstance(error, SyntaxError) and error.filename and str(error.filename).startswith(root):
        return f"{str(error.filename)[len(root) :]}:{error.lineno}"
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]
    return f"{inside[-1].filename[len(root) :]}:{inside[-1].lineno}" if inside else ""


def traceback_text(error: BaseException, folder: Path) -> str:
    """Format the traceback of `error` from its first frame inside `folder` on: the harness's own frames stay out."""
    root = f"{folder.resolve()}/"
    start: TracebackType | None = error.__traceback__
    while start is not None and not start.tb_frame.f_code.co_filename.startswith(root):
        start = start.tb_next
    return traced(error, start)
