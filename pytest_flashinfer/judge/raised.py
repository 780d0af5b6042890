"""Where in a solution's sources an exception came from, read from the traceback that its process sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = 4  # frames, the innermost ones
_FRAME = re.compile(r'^ {1,6}File "([^"\n]+)", line (\d+)(?:,? in (.{1,200}))?$')  # as faulthandler has it, too
_CAUSE = "The above exception was the direct cause of the following exception:"
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
        return f"at {self.file}:{self.line}{inside}" + (f": {self.code}" if self.code else "")


def frames(traceback: str) -> list[Frame]:
    """Return the frames that lie in the solution's own files, outermost first; those of the harness are left out.

    An exception that another one was raised from comes first in a traceback, and lies further in.
    """
    parts = traceback.split(_CAUSE)
    return [frame for part in reversed(parts) for frame in _frames(part.splitlines())]


def shown(traceback: str) -> str:
    """Return the innermost frames, one a line; empty where the traceback knows none."""
    return "\n".join(map(str, frames(traceback)[-SHOWN:]))


def _frames(lines: list[str]) -> Iterator[Frame]:
    for number, line in enumerate(lines):
        match = _FRAME.match(line)
        if match is None or _BUILT.match(match[1]) is None:
            continue
        code = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _FRAME.match(lines[number + 1] if number + 1 < len(lines) else ""):
            code = ""
        yield Frame(_BUILT.sub("", match[1]), int(match[2]), match[3] or "", code)
