"""Warnings of this package: where they point, and that with `-W error` one ends an item in a line.

It says of no solution that it is wrong.
"""

from __future__ import annotations

import os
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


_PLACE = re.compile(r"(/[^\s:,]+)(?::(\d+))?")


class RunWarning(pytest.PytestWarning):
    """Said of a run as a whole, as of a folder without solutions."""


def of_run(text: str) -> None:
    """Warn at the first place that a text names, else at the command line: this package's own lines help nobody."""
    found = next((match for match in _PLACE.finditer(text) if os.path.exists(match[1])), None)  # noqa: PTH110
    file, line = ("command line", 0) if found is None else (found[1], int(found[2] or 0))
    warnings.warn_explicit(RunWarning(text), None, file, line)


@contextmanager
def in_a_line() -> Iterator[None]:
    """Have the raised warnings of pytest and of this package fail an item without a traceback."""
    try:
        yield
    except pytest.PytestWarning as error:
        raise pytest.fail.Exception(f"-W error: {error}", pytrace=False) from None
