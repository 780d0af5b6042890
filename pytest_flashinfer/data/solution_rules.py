"""What no schema can say of a solution: files that stay in their folder, an entry that exists. Nothing is run."""

from __future__ import annotations

import posixpath
from collections import Counter
from itertools import islice
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.faults import Fault, Finding, JsonPath, Loaded, unique
from pytest_flashinfer.data.misspelt import check_record
from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.data.source import BrokenSource, bound_names, functions, parse_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.data.model import Solution

_PYTHON = ("python", "triton", "tilelang", "cutedsl", "cutile")  # languages whose entry is a Python function


def paths_stay_inside(solution: Solution) -> Iterator[Finding]:
    """Refuse a source path that leaves the solution's own folder, on any system."""
    seen = Counter(posixpath.normpath(source.path) for source in solution.sources)
    for number, source in enumerate(solution.sources):
        where = ("sources", number, "path")
        problem = unsafe_path(source.path)
        if problem:
            yield where, f"{source.path!r} {problem}", "fault"
        elif seen[posixpath.normpath(source.path)] > 1:
            yield where, f"{source.path!r} stands here twice: keep one", "fault"


def unsafe_path(path: str) -> str | None:
    """Say why a file must not be written at a relative path from a stranger."""
    plain = posixpath.normpath(path)
    if "\0" in path or "\\" in path or any(ord(character) < 32 for character in path):  # noqa: PLR2004
        return "has a backslash or control character: write plain '/' paths"
    if path.startswith(("/", "~")) or PureWindowsPath(path).drive:
        return "is absolute: write it from the solution's folder"
    if ".." in path.split("/"):
        return "leaves the solution's folder: refused"
    return "is a folder, not a file" if plain == "." or path.endswith("/") else None


def entry_is_there(solution: Solution) -> Iterator[Finding]:
    """Demand that the entry file is among the sources and, in Python, defines the entry function."""
    where: JsonPath = () if solution.module else ("spec", "entry_point")  # a module has no such key
    paths = [source.path for source in solution.sources]
    wanted = posixpath.normpath(solution.entry_file)
    entry = next((source for source in solution.sources if posixpath.normpath(source.path) == wanted), None)
    if not paths or (":" in wanted and not solution.entry_function):
        return  # it has been said that there are no sources, or that one colon is too few
    if entry is None:
        safe = [path for path in paths if unsafe_path(path) is None]
        have = did_you_mean(solution.entry_file, safe) or (f"; there is {', '.join(safe)}" if safe else "")
        yield where, f"entry file {solution.entry_file!r} is not among the sources{have}", "fault"
        return
    if not solution.entry_function.strip():
        yield where, "names no function: write '<file>::<function>'", "fault"
    elif solution.language in _PYTHON and entry.path.endswith(".py"):
        tree = parse_python(entry.content)
        if not isinstance(tree, BrokenSource) and solution.entry_function not in bound_names(tree):
            names = list(functions(tree))
            have = did_you_mean(solution.entry_function, names) or f" (there is: {', '.join(names) or 'none'})"
            hint = f"; name the one that solves it {solution.entry_function}" if solution.module and names else ""
            yield where, f"{entry.path} has no top-level function {solution.entry_function!r}{have}{hint}", "fault"


def python_parses(solution: Solution) -> Iterator[Finding]:
    """Demand that Python sources are Python."""
    for number, source in enumerate(solution.sources):
        tree = parse_python(source.content) if source.path.endswith(".py") else None
        if isinstance(tree, BrokenSource):
            yield ("sources", number, "content"), f"{source.path}:{tree.line}: {tree.message}", "fault"


RULES: tuple[Callable[[Solution], Iterator[Finding]], ...] = (paths_stay_inside, entry_is_there, python_parses)


def check_solution(loaded: Loaded[Solution]) -> tuple[Fault, ...]:
    """Say all that is wrong or odd with a solution; whether its definition exists is for the data set to say."""
    faults = check_record("solution", loaded)
    if loaded.value is not None:
        for rule in RULES:
            found = islice(rule(loaded.value), schema.MAX_FINDINGS)
            faults.extend(loaded.fault(where, message, kind) for where, message, kind in found)
    return unique(faults)
