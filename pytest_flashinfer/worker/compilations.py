"""Listens, in the worker, to what Triton compiles during calls: so that a search can say where its time went."""

from __future__ import annotations

import sys
from typing import Any, Final

_MOST: Final = 64  # compilations of one call, as told to the judge
_LONGEST: Final = 60  # characters of a value
_PLAIN: Final = (bool, int, float, str)


class Compilations:
    """What was compiled and not told yet: rows of kernel, seconds and the values that it was compiled for."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, float, dict[str, str]]] = []

    def listen(self) -> None:
        """Listen from now on, where Triton is loaded, tells (3.4 and later), and tells nobody else."""
        knobs = getattr(sys.modules.get("triton.knobs"), "compilation", None)
        if knobs is not None and getattr(knobs, "listener", False) is None:
            knobs.listener = self._heard

    def take(self) -> list[tuple[str, float, dict[str, str]]]:
        """Return what was heard, and forget it."""
        rows, self._rows = self._rows, []
        return rows

    def _heard(self, **facts: Any) -> None:
        """Take note of one compilation, or of one that Triton's cache on disk spared."""
        if len(self._rows) < _MOST:
            source, times = facts.get("src"), facts.get("times")
            microseconds = getattr(times, "total", 0)
            self._rows.append((str(getattr(source, "name", "")), microseconds * 1e-6, _constants(source)))


def _constants(source: Any) -> dict[str, str]:
    """Return the plain constants by parameter; Triton names them by their place, as a tuple for nested ones."""
    names = getattr(getattr(source, "fn", None), "arg_names", ())
    constants = getattr(source, "constants", None)
    found = {}
    for place, value in constants.items() if isinstance(constants, dict) else ():
        index = place[0] if isinstance(place, tuple) and place else place
        if isinstance(value, _PLAIN) and isinstance(index, int) and index < len(names):
            found[str(names[index])] = str(value)[:_LONGEST]
    return found
