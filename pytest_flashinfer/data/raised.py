"""Exceptions in words."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_LONGEST = 2000  # characters of a frame, and of what an exception says: what comes before and after is to be kept


def told(error: BaseException) -> str:
    """Return an exception's type, and in one line what it says, if it says anything."""
    said, name = str(error).strip(), type(error).__name__
    return f"{name}: {said.splitlines()[0]}" if said else name


def traced(error: BaseException, start: TracebackType | None) -> str:
    """Return the traceback of an exception and of those that led to it, from the frame `start` on; long parts are cut.

    Whatever it says, the frames are there. May raise anything that the exception's own methods raise.
    """
    parts = traceback.format_exception(type(error), error, start)
    return "".join(part if len(part) <= _LONGEST else f"{part[:_LONGEST]}...\n" for part in parts)
