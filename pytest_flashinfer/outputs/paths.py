"""Paths as people read them: from the folder in which they started pytest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def from_here(config: pytest.Config, said: object) -> str:
    """Return a path, or a text with paths in it, in which those below the folder of the call start there.

    A short summary has room for a few dozen characters: a long path that all have in common would fill it.
    """
    here = re.escape(config.invocation_params.dir.as_posix().rstrip("/"))
    return re.sub(rf"(?<![\w./-]){here}/", "", str(said))
