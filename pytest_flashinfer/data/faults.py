"""What is wrong with a file, and what came of reading it: one line per fault, with the place and what to do next."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pytest_flashinfer.data.files import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
FaultKind = Literal["fault", "warning", "skip"]
JsonPath = tuple[str | int, ...]
Finding = tuple[JsonPath, str, FaultKind]  # where a rule is broken, and how


def show_path(where: JsonPath) -> str:
    """Write a path into a JSON document as people do: `inputs.x.shape[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return printable(text.removeprefix("."))


def printable(text: str, limit: int = 1000) -> str:
    """Put a text from a stranger's file on one line: no line break, no escape sequence, no end of it."""
    plain = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:limit])
    return plain if len(text) <= limit else f"{plain}..."


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in one line.

    `line` and `column` count from 1 and are `None` where the file as a whole is meant; `where` is the path into the
    document as `show_path` writes it. Kind `warning` is odd but harmless; kind `skip` says that this machine cannot
    use the data, not that the data is wrong.
    """

    path: Path
    line: int | None
    where: str
    message: str
    column: int | None = None
    kind: FaultKind = "fault"

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))

    def __str__(self) -> str:
        place = ":".join(printable(str(part)) for part in (self.path, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.where, self.message) if part)


def cannot_enter(error: OSError) -> Fault:
    """Say that a folder cannot be looked into."""
    return Fault(Path(error.filename), None, "", f"cannot be read: {reason_of(error)}")


class Lines(Protocol):
    """Where the parts of a record stand in its file."""

    def __call__(self, where: JsonPath) -> int:
        """Give the line of a part, or of its nearest ancestor that the file has."""

    def has(self, where: JsonPath) -> bool:
        """Whether the file has a part: reading supplies some that it leaves out."""

    def show(self, where: JsonPath) -> str:
        """Write the path of a part with the keys of the file: an older form has other names than the record."""


class OneLine:
    """All parts on one line: for a record that has no JSON document."""

    def __init__(self, line: int = 1) -> None:
        self.line = line

    def __call__(self, where: JsonPath) -> int:
        """Give that line."""
        del where
        return self.line

    def has(self, where: JsonPath) -> bool:
        """Take it for there."""
        del where
        return True

    def show(self, where: JsonPath) -> str:
        """Write the path as it is."""
        return show_path(where)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A record read from a file, and all that is to be said about the reading.

    `value` is `None` where the file is too broken to say what it means; it may be there together with faults.
    `notes` tell what was changed to fit the canonical form, `warnings` what is odd but harmless. `raw` is the
    document in canonical form, before it became a record, or what makes it once more: see `canonical`. `lines` gives
    the line of a path into it, or of its nearest ancestor that the file has. `claim` is the definition that a
    record is for whose document is not there, or not before it is made once more.
    """

    value: T | None
    path: Path
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[Fault, ...] = ()
    line: int = 1
    lines: Lines = field(default_factory=OneLine, compare=False, repr=False)
    raw: Any = field(default=None, compare=False, repr=False)
    claim: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))

    def canonical(self) -> Any:
        """Give the document in canonical form, which the JSON Schemas are checked against; `None` if there is none."""
        return self.raw() if callable(self.raw) else self.raw

    def fault(self, where: JsonPath, message: str, kind: FaultKind = "fault") -> Fault:
        """Make a fault at a path into this document."""
        return Fault(self.path, self.lines(where), self.lines.show(where), message, kind=kind)


def unique(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Drop repetitions and order by line, so that a reader goes through the file once."""
    return tuple(sorted(dict.fromkeys(faults), key=lambda fault: (str(fault.path), fault.line or 0)))


def without_repeats(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Drop what is said of a place that an earlier check has spoken of: the first one knows most."""
    spoken: dict[str, int] = {}
    kept = []
    for number, fault in enumerate(faults):
        if not fault.where or spoken.setdefault(f"{fault.path}:{fault.line}:{fault.where}", number) == number:
            kept.append(fault)
    return unique(kept)
