"""The data set as the items of a run see it: solutions by key, workloads in scope, and where each is stated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.data.solution_forms import CONFIG
from pytest_flashinfer.scope import smoke

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from pytest_flashinfer.data.faults import Fault, Lines, Loaded
    from pytest_flashinfer.data.model import Definition, Solution, Workload
    from pytest_flashinfer.options import Options, Scope

SHOWN = 5  # solutions that a warning names


@dataclass(frozen=True)
class Entry:
    """A solution with its file and the mark that its items carry."""

    solution: Solution
    path: Path
    mark: pytest.MarkDecorator
    lines: Lines  # of its file


class Catalogue:
    """Looks up what belongs to a definition; files are read when they are first asked for."""

    def __init__(self, options: Options, scope: Scope) -> None:
        self.options = options
        self.scope = scope
        self.dataset = DataSet(options.definitions, options.solutions, options.workloads)
        self._solutions: dict[str, dict[str, Entry]] = {}
        self._lines: dict[Path, dict[str, Loaded[Workload]]] = {}  # by uuid

    def is_definition(self, path: Path) -> bool:
        """Whether a file is one of the definitions: in a folder of them, or named itself."""
        return path in self._files

    @cached_property
    def _files(self) -> frozenset[Path]:
        return frozenset(self.dataset.definition_files())

    def definition(self, path: Path) -> Definition | None:
        """Return the definition in a file, or `None` where the file is broken."""
        return self.dataset.load(path).value

    def solutions(self, definition: Definition) -> dict[str, Entry]:
        """Return the readable solutions of a definition by key, sorted; none where its own name is taken twice.

        The key is the solution's name, with the author and a number in front and behind where it is taken.
        """
        name = definition.name
        if name not in self._solutions:
            self._solutions[name] = {} if self.dataset.is_ambiguous(name) else self._find_solutions(name)
        return self._solutions[name]

    def _find_solutions(self, name: str) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for loaded in self.dataset.solutions_for(name):
            solution = loaded.value
            if solution is not None:
                facts = {"name": solution.name, "author": solution.author, "language": solution.language}
                entries[_key(solution, entries)] = Entry(
                    solution, loaded.path, pytest.mark.solution(**facts), loaded.lines
                )
        return dict(sorted(entries.items()))

    def broken(self, definition: Definition) -> set[str]:
        """Return the names of files that would be solutions of a definition, could they be read."""
        return {loaded.path.stem for loaded in self.dataset.solutions_for(definition.name) if loaded.value is None}

    def workloads(self, path: Path, definition: Definition) -> dict[str, Workload]:
        """Return the valid workloads in scope by uuid, in the order of their sizes.

        A failure that was saved is always in scope: it is small, and somebody wants to know.
        """
        lines = self.dataset.workloads(path)
        valid = [loaded.value for loaded in lines if loaded.value is not None and not loaded.faults]
        if self.scope == "smoke":
            saved = [workload for workload in valid if "recipe" in workload.extra]
            valid = [*smoke(definition, [workload for workload in valid if workload not in saved]), *saved]
        valid.sort(key=lambda workload: ([workload.axes.get(axis, 0) for axis in definition.var_axes], workload.uuid))
        return {workload.uuid: workload for workload in valid}

    def listed(self, path: Path) -> list[Workload]:
        """Return all readable workloads of a definition, in scope or not: they say what sizes people use."""
        return [loaded.value for loaded in self.dataset.workloads(path) if loaded.value is not None]

    def workload_file(self, path: Path) -> Path | None:
        """Return the file to which a new workload line of a definition belongs."""
        lines, definition = self.dataset.workloads(path), self.definition(path)
        if lines:
            return lines[0].path
        folders = [place for place in self.options.workloads if place.is_dir()]
        if definition is None or not folders:
            return None
        return folders[0] / definition.op_type / f"{definition.name}.jsonl"

    def location(self, path: Path, uuid: str | None) -> tuple[Path, int | None]:
        """Return where an item is stated: the workload's line, else the definition's first, counted from 0."""
        line = None if uuid is None else self._by_uuid(path).get(uuid)
        return (path, 0) if line is None else (line.path, line.line - 1)

    def workload(self, path: Path, uuid: str) -> Workload | None:
        """Return one readable workload of a definition, in scope or not."""
        line = self._by_uuid(path).get(uuid)
        return None if line is None else line.value

    def _by_uuid(self, path: Path) -> dict[str, Loaded[Workload]]:
        if path not in self._lines:
            lines = reversed(self.dataset.workloads(path))  # of two with one uuid the first is meant
            self._lines[path] = {line.value.uuid: line for line in lines if line.value is not None}
        return self._lines[path]

    def problems(self, path: Path) -> tuple[Fault, ...]:
        """Return all that is wrong or odd with a definition's file, its workloads and its solutions."""
        return self.dataset.problems(path)

    def notes(self, path: Path) -> list[str]:
        """Return what was changed in reading a definition's file, a line for each."""
        return [f"{path}: {note}" for note in self.dataset.load(path).notes]

    def data_root(self, path: Path) -> Path | None:
        """Return the folder below which the stored tensors of a definition's workloads lie."""
        lines = self.dataset.workloads(path)
        return self.dataset.root_of(lines[0].path) if lines else None

    def refused(self) -> list[str]:
        """Return why solutions that were named themselves, not by a folder of them, belong to no definition here."""
        named = {place for place in self.options.solutions if place.is_file() or (place / CONFIG).is_file()}
        faults = [fault for fault in self.dataset.unknown_solutions() if {fault.path, fault.path.parent} & named]
        return [str(fault) for fault in faults]

    def unreadable(self) -> list[Fault]:
        """Return the faults of solution files that cannot be read, and belong to no definition therefore."""
        return self.dataset.unreadable_solutions()

    def warnings(self, *, failing: bool = True) -> list[str]:
        """Return what is not run although it was named: places without solutions, solutions without a definition.

        `failing`: solutions that cannot be read fail as items of their own, so that nobody need be warned of them.
        """
        found = [loaded.path for loaded in self.dataset.solutions]
        lines = [
            f"--fib-solutions: no solution in {place}: a solution is a .json file, a folder with a config.toml,"
            " or a .py module that says `definition = ...`"
            for place in self.options.solutions
            if not any(place == path or place in path.parents for path in found)
        ]
        known = set(self.unreadable()) if failing else set()
        unknown = [fault for fault in self.dataset.unknown_solutions() if fault not in known]
        unknown.sort(key=lambda fault: "did you mean" not in fault.message)
        if unknown:
            more = [f"and {len(unknown) - SHOWN} more"] if len(unknown) > SHOWN else []
            lines.append("\n".join(["solutions that are not run:", *map(str, unknown[:SHOWN]), *more]))
        without, stray = self.dataset.stray_workloads()
        if without and stray:
            lines.append(
                f"{len(without)} definitions have no workloads, and {len(stray)} files belong to no definition, as"
                f" {stray[0]}: name a file after the definition, as {without[0]}.jsonl, or give the file itself"
            )
        forgotten = self._without_workloads(set(without))
        if forgotten and not stray:
            others = f" and {len(forgotten) - 1} more" if len(forgotten) > 1 else ""
            lines.append(
                f"no workloads for {forgotten[0]}{others}: nothing but test_sizes runs solutions; name a file"
                f" {forgotten[0]}.jsonl, in a folder workloads/ beside the definitions or in one given with"
                " --fib-workloads"
            )
        return lines

    def _without_workloads(self, names: set[str]) -> list[str]:
        """Return the definitions with solutions where none has workloads; `names` have no file that is named so."""
        asked = [name for name in self.dataset.names if self.dataset.solutions_for(name)]
        if not set(asked) <= names:
            return []
        texts = (self.dataset.workload_text(path) for name in asked for path in self.dataset.names[name])
        return [] if any(texts) else asked


def _key(solution: Solution, taken: Container[str]) -> str:
    if solution.name not in taken:
        return solution.name
    key = own = f"{solution.author}.{solution.name}"
    number = 1
    while key in taken:
        number += 1
        key = f"{own}.{number}"
    return key
