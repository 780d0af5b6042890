"""Finding the files of a data set: sorted, hidden ones left aside, each folder walked once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.data.files import enter, read_text
from pytest_flashinfer.data.solution_forms import CONFIG, MAX_SOURCE
from pytest_flashinfer.data.solution_module import RUN, is_solution_module, misspelt_definition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SOL_PROBLEM = "definition.json"
TRACE_SUFFIX = ".trace.json"  # the record of how a solution came to be, beside the solution
_NOBODYS = ("venv", "node_modules")  # folders that hold other people's files
_NO_SOLUTION = ("conftest.py", "__init__.py")  # which Python and pytest import by themselves
_IMPORT = re.compile(r"^(?:import|from) (?:torch|triton)\b", re.MULTILINE)
_OTHER = re.compile(r"_|conftest\.py$|test_|setup\.py$")  # Python files that nobody takes for a solution


def walk(
    root: Path, stop_at: str | None = None, closed: list[OSError] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Yield every folder below `root`, itself first, with the names of its files, in sorted order.

    Folders below one that holds a file named `stop_at` are left aside, and so are environments of Python and of Node.
    Why a folder cannot be looked into is added to `closed`. Raises OSError where there is no such list.
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
        folders[:] = sorted(
            name for name in inner if not name.startswith((".", "__pycache__")) and name not in _NOBODYS
        )


def misnamed(path: Path) -> str:
    """Say why a file is not read that looks as if it should be: what the lists below give as `odd`."""
    if path.suffix != path.suffix.lower():
        return f"is not read: write its suffix as {path.suffix.lower()}"
    return "is not read: Python and pytest import files of this name by themselves; give it another"


def is_misnamed(path: Path, *suffixes: str) -> bool:
    """Whether a file is not read for its name alone, where files of these suffixes are."""
    if path.name in _NO_SOLUTION and ".py" in suffixes:
        return _names_definition(path)
    return path.name.lower().endswith(suffixes) and not path.name.endswith(suffixes)


def definition_files(
    paths: Iterable[Path], closed: list[OSError] | None = None, odd: list[Path] | None = None
) -> list[Path]:
    """List the `.json` files below folders, and files that are given themselves.

    In the folder of a SOL-ExecBench problem, `definition.json` is the one; solutions may lie beside it.
    Files whose suffix is not in lower case are added to `odd`.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, names in walk(path, closed=closed):
                wanted = [_SOL_PROBLEM] if _SOL_PROBLEM in names else names
                found.update((folder / name, None) for name in wanted if name.endswith(".json"))
                if odd is not None:
                    odd += (folder / name for name in names if is_misnamed(folder / name, ".json"))
        else:
            found[path] = None
    return list(found)


def workload_files(
    root: Path, closed: list[OSError] | None = None, odd: list[Path] | None = None
) -> dict[str, list[Path]]:
    """Index the `.jsonl` files below a folder by their stem, which is the definition's name; `odd` as above."""
    found: dict[str, list[Path]] = {}
    for folder, names in walk(root, closed=closed):
        for name in names:
            if name.endswith(".jsonl"):
                found.setdefault(name.removesuffix(".jsonl"), []).append(folder / name)
            elif odd is not None and is_misnamed(folder / name, ".jsonl"):
                odd.append(folder / name)
    return found


def solution_files(
    paths: Iterable[Path],
    closed: list[OSError] | None = None,
    others: list[Path] | None = None,
    odd: list[Path] | None = None,
) -> list[Path]:
    """List solutions: `.json` files, folders with a `config.toml`, and Python modules that name a definition.

    Python files below folders that name none are added to `others`, unless their names say what else they are; `odd` as
    above, and modules that name one under a name that no solution can have.
    """
    found: dict[Path, None] = {}
    others, odd = [] if others is None else others, [] if odd is None else odd
    for path in paths:
        if path.is_dir():
            for file in _below(path, closed):
                if is_misnamed(file, ".json", ".py"):
                    odd.append(file)
                elif file.suffix != ".py" or may_be_solution(file):
                    found[file] = None
                elif _OTHER.match(file.name) is None:
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
            if name.lower().endswith((".py", ".json")) and not name.endswith(TRACE_SUFFIX):
                yield folder / name


def may_be_solution(path: Path) -> bool:
    """Whether a Python file may be a solution, as one that cannot be read may, or nearly says that it is one."""
    return path.name not in _NO_SOLUTION and _names_definition(path)


def lacks_definition(path: Path) -> bool:
    """Whether a Python file looks like a solution but for the definition's name.

    Its name is no test's, and it has a function `run` and imports torch or Triton: any script may have the one.
    """
    text = read_text(path, MAX_SOURCE)[0] if _OTHER.match(path.name) is None else None
    return bool(text and RUN.search(text) and _IMPORT.search(text)) and not may_be_solution(path)


def _names_definition(path: Path) -> bool:
    text, _reason = read_text(path, MAX_SOURCE)
    return text is None or is_solution_module(text) or misspelt_definition(text) is not None
