"""Finding the files of a data set: sorted, hidden ones left aside, each folder walked once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.data.files import enter, read_text
from pytest_flashinfer.data.solution_forms import CONFIG, MAX_SOURCE
from pytest_flashinfer.data.solution_module import is_solution_module, misspelt_definition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SOL_PROBLEM = "definition.json"
TRACE_SUFFIX = ".trace.json"  # the record of how a solution came to be, beside the solution
_OTHER = re.compile(r"_|conftest\.py$|test_|setup\.py$")  # Python files that nobody takes for a solution


def walk(
    root: Path, stop_at: str | None = None, closed: list[OSError] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Yield every folder below `root`, itself first, with the names of its files, in sorted order.

    Folders below one that holds a file named `stop_at` are left aside. Why a folder cannot be looked into is added to
    `closed`. Raises OSError where there is no such list.
    """

    def refuse(error: OSError) -> None:
        if closed is None:
            raise error
        closed.append(error)

    for folder, folders, names in os.walk(root, onerror=refuse):
        try:
            enter(Path(folder))
        except OSError as error:
            refuse(error)
            folders.clear()
            continue
        yield Path(folder), sorted(name for name in names if not name.startswith("."))
        inner = () if stop_at in names else folders
        folders[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__")))


def definition_files(paths: Iterable[Path], closed: list[OSError] | None = None) -> list[Path]:
    """List the `.json` files below folders, and files that are given themselves.

    In the folder of a SOL-ExecBench problem, `definition.json` is the one; solutions may lie beside it.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, names in walk(path, closed=closed):
                wanted = [_SOL_PROBLEM] if _SOL_PROBLEM in names else names
                found.update((folder / name, None) for name in wanted if name.endswith(".json"))
        else:
            found[path] = None
    return list(found)


def workload_files(root: Path, closed: list[OSError] | None = None) -> dict[str, list[Path]]:
    """Index the `.jsonl` files below a folder by their stem, which is the definition's name."""
    found: dict[str, list[Path]] = {}
    for folder, names in walk(root, closed=closed):
        for name in names:
            if name.endswith(".jsonl"):
                found.setdefault(name.removesuffix(".jsonl"), []).append(folder / name)
    return found


def solution_files(
    paths: Iterable[Path], closed: list[OSError] | None = None, others: list[Path] | None = None
) -> list[Path]:
    """List solutions: `.json` files, folders with a `config.toml`, and Python modules that name a definition.

    Python files below folders that name none are added to `others`, unless their names say what else they are.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for file in _below(path, closed):
                if file.suffix != ".py" or may_be_solution(file):
                    found[file] = None
                elif others is not None and _OTHER.match(file.name) is None:
                    others.append(file)
        else:
            found[path] = None
    return list(found)


def _below(root: Path, closed: list[OSError] | None) -> Iterator[Path]:
    """Yield folders with a `config.toml`, and the JSON and Python files outside of them."""
    for folder, names in walk(root, CONFIG, closed):  # what lies below a config.toml are the sources it is about
        if CONFIG in names:
            yield folder
            continue
        for name in names:
            if name.endswith(".py") or (name.endswith(".json") and not name.endswith(TRACE_SUFFIX)):
                yield folder / name


def may_be_solution(path: Path) -> bool:
    """Whether a Python file may be a solution, as one that cannot be read may, or nearly says that it is one."""
    text, _reason = read_text(path, MAX_SOURCE)
    return text is None or is_solution_module(text) or misspelt_definition(text) is not None
