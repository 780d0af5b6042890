"""Finding the files of a data set: sorted, hidden ones left aside, each folder walked once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.data.files import read_text
from pytest_flashinfer.data.solution_forms import CONFIG, MAX_SOURCE, is_solution_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SOL_PROBLEM = "definition.json"
TRACE_SUFFIX = ".trace.json"  # the record of how a solution came to be, beside the solution


def walk(root: Path, stop_at: str | None = None) -> Iterator[tuple[Path, list[str]]]:
    """Yield every folder below `root`, itself first, with the names of its files, in sorted order.

    Folders below one that holds a file named `stop_at` are left aside.
    """
    for folder, folders, names in os.walk(root):
        yield Path(folder), sorted(name for name in names if not name.startswith("."))
        inner = () if stop_at in names else folders
        folders[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__")))


def definition_files(paths: Iterable[Path]) -> list[Path]:
    """List the `.json` files below folders, and files that are given themselves.

    In the folder of a SOL-ExecBench problem, `definition.json` is the one; solutions may lie beside it.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, names in walk(path):
                wanted = [_SOL_PROBLEM] if _SOL_PROBLEM in names else names
                found.update((folder / name, None) for name in wanted if name.endswith(".json"))
        else:
            found[path] = None
    return list(found)


def workload_files(root: Path) -> dict[str, list[Path]]:
    """Index the `.jsonl` files below a folder by their stem, which is the definition's name."""
    found: dict[str, list[Path]] = {}
    for folder, names in walk(root):
        for name in names:
            if name.endswith(".jsonl"):
                found.setdefault(name.removesuffix(".jsonl"), []).append(folder / name)
    return found


def solution_files(paths: Iterable[Path]) -> list[Path]:
    """List solutions: `.json` files, folders with a `config.toml`, and Python modules that name a definition."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update((solution, None) for solution in _solutions_below(path))
        else:
            found[path] = None
    return list(found)


def _solutions_below(root: Path) -> Iterator[Path]:
    for folder, names in walk(root, stop_at=CONFIG):  # what lies below a config.toml are the sources it is about
        if CONFIG in names:
            yield folder
            continue
        for name in names:
            path = folder / name
            if _is_module(path) if name.endswith(".py") else name.endswith(".json") and not name.endswith(TRACE_SUFFIX):
                yield path


def _is_module(path: Path) -> bool:
    """Whether a Python file may be a solution, as one that cannot be read may."""
    text, _reason = read_text(path, MAX_SOURCE)
    return text is None or is_solution_module(text)
