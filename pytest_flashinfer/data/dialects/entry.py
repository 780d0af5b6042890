"""References whose entry is not `run`: other tools get a `run` that calls it, and reading takes it off again."""

from __future__ import annotations


def wrapper(entry: str) -> str:
    """Source to put after a reference so that it has a `run`."""
    return f"\n\n\ndef run(*args):\n    return {entry}(*args)\n"


def strip_wrapper(reference: str, entry: str) -> str:
    """Give a reference back as its author wrote it."""
    return reference.removesuffix(wrapper(entry)) if entry != "run" else reference
