"""Exceptions in words."""

from __future__ import annotations


def told(error: BaseException) -> str:
    """Return an exception's type, and in one line what it says, if it says anything."""
    said, name = str(error).strip(), type(error).__name__
    return f"{name}: {said.splitlines()[0]}" if said else name
