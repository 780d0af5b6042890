"""A place that nobody can read, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flashinfer.data.solution_forms import name_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.data.faults import Fault


@dataclass(frozen=True)
class Unreadable:
    """A file or folder that cannot be read; `definition` is the one that it names or lies in the folder of, or `""`."""

    path: Path
    faults: tuple[Fault, ...]
    definition: str

    @property
    def name(self) -> str:
        """What it is called by."""
        return name_of(self.path)
