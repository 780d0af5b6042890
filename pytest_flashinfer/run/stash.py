"""Where the run's session object is kept on pytest's config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_flashinfer.run.session import FibSession

SESSION: pytest.StashKey[FibSession] = pytest.StashKey()
