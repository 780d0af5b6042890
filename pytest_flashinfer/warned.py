"""A warning of this package under `-W error`: it ends an item in one line, and says of no solution that it is wrong."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def in_a_line() -> Iterator[None]:
    """Have the raised warnings of pytest and of this package fail an item without a traceback."""
    try:
        yield
    except pytest.PytestWarning as error:
        raise pytest.fail.Exception(f"-W error: {error}", pytrace=False) from None
