"""What is wrong with a file, and what came of reading it: one line per fault, with the place and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
JsonPath = tuple[str | int, ...]
Lines = Callable[[JsonPath], int]


def show_path(where: JsonPath) -> str:
    """Write a path into a JSON document as people do: `inputs.x.shape[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in one line.

    `line` and `column` count from 1 and are `None` where the file as a whole is meant; `where` is the path into the
    document as `show_path` writes it. A fault of kind `skip` says that this machine cannot use the data, not that the
    data is wrong.
    """

    path: Path
    line: int | None
    where: str
    message: str
    column: int | None = None
    kind: Literal["fault", "skip"] = "fault"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.where, self.message) if part)


def first_line(where: JsonPath) -> int:
    """Stand in for a line lookup where there is no document: everything is on line 1."""
    del where
    return 1


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A record read from a file, and all that is to be said about the reading.

    `value` is `None` where the file is too broken to say what it means; it may be there together with faults.
    `notes` tell what was changed to fit the canonical form, `warnings` what is odd but harmless. `raw` is the
    document in canonical form, before it became a record: what the JSON Schemas are checked against. `lines` gives
    the line of a path into `raw`, or of its nearest ancestor that the file has.
    """

    value: T | None
    path: Path
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[Fault, ...] = ()
    line: int = 1
    lines: Lines = field(default=first_line, compare=False, repr=False)
    raw: Any = field(default=None, compare=False, repr=False)

    def fault(self, where: JsonPath, message: str) -> Fault:
        """Make a fault at a path into this document."""
        return Fault(self.path, self.lines(where), show_path(where), message)


def unique(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Drop repetitions and order by line, so that a reader goes through the file once."""
    return tuple(sorted(dict.fromkeys(faults), key=lambda fault: (str(fault.path), fault.line or 0)))
