"""A definition on its way into the canonical form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_flashinfer.data.faults import JsonPath


@dataclass(slots=True)
class Draft:
    """The document so far, and all that is to be said about how it came to be.

    `renamed` maps a top-level key of the canonical form to the one that the file has. `faults` and `warnings` are
    pairs of a path into `raw` and a message.
    """

    raw: dict[str, Any]
    path: Path
    form: int = 3
    entry: str = "run"
    default_dtype: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[tuple[JsonPath, str]] = field(default_factory=list)
    warnings: list[tuple[JsonPath, str]] = field(default_factory=list)

    def rename(self, old: str, new: str) -> None:
        """Give a top-level key its canonical name, in its place; where that name is taken, warn of what is not read."""
        if old in self.raw and new in self.raw:
            if self.raw[old] not in (None, self.raw[new]):
                other = self.renamed.get(new, new)
                self.warnings.append(((old,), f"{old!r} is not read, since {other!r} is there too: put them together"))
        elif old in self.raw:
            self.raw = {new if key == old else key: value for key, value in self.raw.items()}
            self.renamed[new] = old
            self.notes.append(f"key {old!r} read as {new!r}")

    def default(self, key: str, value: Any) -> None:
        """Add a key that this form leaves out."""
        if self.raw.get(key) is None:
            self.raw[key] = value
            self.notes.append(f"no {key!r}: read as {value!r}")

    def objects(self, *keys: str) -> Iterator[tuple[JsonPath, dict[str, Any]]]:
        """Yield the objects inside the objects of these keys, such as all tensors, whatever else is broken."""
        for key in keys:
            members = self.raw.get(key)
            for name, member in members.items() if isinstance(members, dict) else ():
                if isinstance(member, dict):
                    yield (key, name), member

    def text(self, key: str) -> str | None:
        """Give a top-level value if it is a string."""
        value = self.raw.get(key)
        return value if isinstance(value, str) else None
