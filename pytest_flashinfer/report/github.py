"""Workflow commands of GitHub Actions: lines of the log that its runner obeys, and how to keep strangers from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.report.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHOWN = 10  # annotations of one kind that GitHub shows for a step
LONGEST = (1_200, 800)  # characters of a message, of its beginning and of its end


@dataclass(frozen=True)
class Failure:
    """A failed item: what is wrong, about whom, and the line (from 1) to look at."""

    path: str
    line: int
    title: str
    text: str


def command(name: str, message: str, **properties: object) -> str:
    """Return the line of a workflow command; whatever the texts hold, it is one command and this one."""
    given = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name}{' ' if given else ''}{given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def stop(token: str) -> str:
    """Return the line after which the runner obeys nothing until it reads `resume` of the same secret token."""
    return f"::stop-commands::{token}"


def resume(token: str) -> str:
    """Return the line that ends what `stop` began."""
    return f"::{token}::"


def errors(failures: Iterable[Failure], root: Path, called: str = "failures") -> Iterator[str]:
    """Yield an error for each place and title, the first of them in full, at most as many as GitHub shows.

    `called` is what the rest is called, in the plural.
    """
    first: dict[tuple[str, int, str], Failure] = {}
    count: Counter[tuple[str, int, str]] = Counter()
    for failure in failures:
        key = (failure.path, failure.line, failure.title)
        first.setdefault(key, failure)
        count[key] += 1
    for key, failure in list(first.items())[:SHOWN]:
        others = f"\n(and {count[key] - 1} more of the same)" if count[key] > 1 else ""
        place = {"file": relative(failure.path, root), "line": failure.line}
        yield command("error", short(failure.text) + others, **place, title=failure.title)
    if len(first) > SHOWN:
        yield command("notice", f"{len(first) - SHOWN} more {called} are in the log and in the summary of the job")


def short(text: str) -> str:
    """Return as much of a text as an annotation should have."""
    return excerpt(text, *LONGEST)


def relative(path: str, root: Path) -> str:
    """Return a path as the repository has it, where it lies in there."""
    full = Path(path)
    full = full if full.is_absolute() else root / full
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else path
