"""Where in a solution's sources an exception came from, read from the traceback that its process sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN = 4  # frames, the innermost ones
LONGEST, LINES = 400, 8  # characters of a line, and lines of what an exception says
_CAUSES = 3  # exceptions that led to the one that was raised
_FRAME = re.compile(r'^ {1,6}File "([^"\n]+)", line (\d+)(?:,? in (.{1,200}))?$')  # as faulthandler has it, too
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_LINK = re.compile(rf"^({_CAUSE}|{_CONTEXT})$", re.MULTILINE)
_BUILT = re.compile(r"^.*/solutions/[0-9a-f]{32}/(?:sources/)?")  # the folder that a solution is built in


@dataclass(frozen=True)
class Frame:
    """One frame within the sources of a solution; `file` as the solution calls it, `line` from 1."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        inside = f" in {self.function}" if self.function else ""
        return f"at {self.file}:{self.line}{inside}" + (f": {short(self.code)}" if self.code else "")


def shown(traceback: str) -> str:
    """Return the innermost frames in the solution's own files, one a line; empty where the traceback knows none.

    Those of its causes come behind them, each after what it says: they lie further in, and the last one is to blame.
    What was being handled when the exception came up stands before, with its innermost frame: it is not to blame.
    """
    *before, raised = _LINK.split(traceback)  # what led to it, each followed by how it did
    lines: list[str] = []
    for link, part in list(zip(before[1::2], before[::2], strict=True))[::-1][:_CAUSES]:
        if link == _CONTEXT:
            handled = [f"while handling {short(said)}" for said in _words(part)[:1]]
            return "\n".join([*handled, *_innermost(part)[-1:], *_innermost(raised), *lines])
        if said := _words(part):
            lines += [f"caused by {short(said[0])}", *more(said)]
        lines += _innermost(part)
    return "\n".join([*_innermost(raised), *lines])


def more(said: Sequence[str]) -> list[str]:
    """Return what an exception says beyond its first line, marked as its words, at most so many lines of it."""
    left = len(said) - 1 - LINES
    cut = [f"[... {left:,} more lines ...]"] if left > 0 else []
    return [f"| {short(line)}" for line in said[1 : LINES + 1]] + cut


def short(line: str) -> str:
    """Return a line as long as somebody reads it."""
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _words(part: str) -> list[str]:
    """Return the lines of what the exception of one traceback says, its type first; frames are indented."""
    lines = part.strip("\n").splitlines()
    start = (n for n, line in enumerate(lines) if line and not line.startswith((" ", "Traceback (most recent")))
    return lines[next(start, len(lines)) :]


def _innermost(part: str) -> list[str]:
    return [str(frame) for frame in list(_frames(part.splitlines()))[-SHOWN:]]


def _frames(lines: list[str]) -> Iterator[Frame]:
    for number, line in enumerate(lines):
        match = _FRAME.match(line)
        if match is None or _BUILT.match(match[1]) is None:
            continue
        code = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _FRAME.match(lines[number + 1] if number + 1 < len(lines) else ""):
            code = ""
        yield Frame(_BUILT.sub("", match[1]), int(match[2]), match[3] or "", code)
