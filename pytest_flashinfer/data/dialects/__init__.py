"""The forms in which definitions are found: each is translated into the canonical one, and says what it changed."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.dialects import canonical, description, dump, signature, sol
from pytest_flashinfer.data.dialects.draft import Draft
from pytest_flashinfer.data.dialects.settle import settle

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Draft", "translate"]

_DIALECTS = (signature, description, sol, dump, canonical)  # the first that recognises a document translates it


def translate(raw: dict[str, Any], path: Path) -> Draft:
    """Bring a definition of any form into the canonical one; `raw` is left as it is, nothing is checked here."""
    draft = Draft(copy.deepcopy(raw), path)
    for dialect in _DIALECTS:
        if dialect.recognises(draft):
            dialect.translate(draft)
            break
    settle(draft)
    return draft
