"""The line of a solution's source that a failure points at, in the file that its author edits."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_flashinfer.data.model import Solution
    from pytest_flashinfer.selection.catalogue import Entry

_UNKNOWN = re.compile(r"COMPILE_ERROR: (language|binding) '.*' is not known;")  # where no source is to blame
PROPERTY = "fib_source"  # of a failed item's report: `path:line`


def blamed(item: pytest.Item, text: str) -> tuple[Path, int] | None:
    """Return file and line (from 1) that a failure is about: its frame, else the entry function's first line.

    `text` begins with the status. `None` for an item of no solution, and where it is not the solution's fault.
    """
    if text.startswith("INVALID_REFERENCE"):
        return None
    key = getattr(getattr(item, "callspec", None), "params", {}).get("solution")
    entry = getattr(item.parent, "solutions", {}).get(key)
    return None if entry is None else _place(entry, text.partition(":")[0], text)


def _place(entry: Entry, status: str, text: str) -> tuple[Path, int]:
    """Return file and line; a solution in a JSON file has its sources on one line each, and that line is returned."""
    solution = entry.solution
    if said := _UNKNOWN.match(text):
        return entry.path, entry.lines(("spec", said[1]))
    file, line = _named(solution, status, text) or (solution.entry_file, _entry_line(solution))
    for number, source in enumerate(solution.sources):
        if source.path == file and entry.path.suffix == ".json":
            return entry.path, entry.lines(("sources", number, "content"))
    path = _on_disk(entry, file)
    return (path, line) if path is not None else (entry.path, entry.lines(("spec", "entry_point")))


def _named(solution: Solution, status: str, text: str) -> tuple[str, int] | None:
    """Find `file:line` of one of the sources in a text: the first error of a compiler, the last frame of a run."""
    names = "|".join(re.escape(source.path) for source in solution.sources)
    found = re.findall(rf'(?:^|[\s/"(])({names})(?::|", line )(\d{{1,6}})\b', text, re.MULTILINE) if names else []
    if not found:
        return None
    file, line = found[0 if status == "COMPILE_ERROR" else -1]
    return file, int(line)


def _entry_line(solution: Solution) -> int:
    """Return the line on which the entry function begins, 1 where no such line is found."""
    content = next((each.content for each in solution.sources if each.path == solution.entry_file), "")
    name = re.escape(solution.entry_function)
    starts = rf"^\s*(?:async\s+)?def\s+{name}\s*\(" if solution.entry_file.endswith(".py") else rf"\b{name}\s*\("
    match = re.search(starts, content, re.MULTILINE)
    return 1 if match is None else content[: match.end()].count("\n") + 1


def _on_disk(entry: Entry, file: str) -> Path | None:
    """Return where a source of a module or of a folder lies."""
    folder = entry.path if entry.path.is_dir() else entry.path.parent
    if entry.path.suffix == ".py":
        return entry.path
    inner = folder / "solution"
    places = (inner / entry.solution.language / file, inner / file, folder / file)
    # the name is the solution's to choose, and Path raises where it is too long
    return next((place for place in places if os.path.isfile(place)), None)  # noqa: PTH113
