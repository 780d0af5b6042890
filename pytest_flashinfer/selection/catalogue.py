"""The data set as the items of a run see it: solutions by key, workloads in scope, and where each is stated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.data.solution_forms import name_of
from pytest_flashinfer.data.unreadable import Unreadable
from pytest_flashinfer.selection.scope import smoke

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from pytest_flashinfer.data.faults import Fault, Lines, Loaded
    from pytest_flashinfer.data.model import Definition, Solution, Workload
    from pytest_flashinfer.settings.options import Options, Scope


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
        self._reached: dict[Path, Path] = {}  # through links

    def is_definition(self, path: Path) -> bool:
        """Whether a file is one of the definitions: in a folder of them, or named itself.

        Links lead to one where an argument of pytest does: elsewhere it would be collected once more through a link.
        """
        if path in self._files:
            return True
        return any(map(path.is_relative_to, self.options.linked)) and self.stated(path) in self._files

    def stated(self, path: Path) -> Path:
        """Return the path by which the data set knows a definition's file that somebody may have named by a link."""
        if path in self._files:
            return path
        if path not in self._reached:
            ways = (path.parent.resolve() / path.name, path.resolve())
            self._reached[path] = next((way for way in ways if way in self._files), path)
        return self._reached[path]

    @cached_property
    def _files(self) -> frozenset[Path]:
        return frozenset(self.dataset.definition_files())

    def definition(self, path: Path) -> Definition | None:
        """Return the definition in a file, or `None` where the file is broken."""
        return self.dataset.load(self.stated(path)).value

    def definitions(self) -> Iterator[Definition]:
        """Yield all definitions whose files are not broken."""
        yield from (found for path in self._files if (found := self.definition(path)) is not None)

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
        return {name_of(loaded.path) for loaded in self.dataset.solutions_for(definition.name) if loaded.value is None}

    def workloads(self, path: Path, definition: Definition) -> dict[str, Workload]:
        """Return the valid workloads in scope by uuid, in the order of their sizes.

        A failure that was saved is always in scope: it is small, and somebody wants to know.
        """
        lines = self.dataset.workloads(self.stated(path))
        valid = [loaded.value for loaded in lines if loaded.value is not None and not loaded.faults]
        if self.scope == "smoke":
            saved = [workload for workload in valid if "recipe" in workload.extra]
            valid = [*smoke(definition, [workload for workload in valid if workload not in saved]), *saved]
        valid.sort(key=lambda workload: ([workload.axes.get(axis, 0) for axis in definition.var_axes], workload.uuid))
        return {workload.uuid: workload for workload in valid}

    def listed(self, path: Path) -> list[Workload]:
        """Return all readable workloads of a definition, in scope or not: they say what sizes people use."""
        return [loaded.value for loaded in self.dataset.workloads(self.stated(path)) if loaded.value is not None]

    def workload_text(self, path: Path) -> str:
        """Return the text of all files in which workloads of a definition may be."""
        return self.dataset.workload_text(self.stated(path))

    def workload_file(self, path: Path) -> Path | None:
        """Return the file to which a new workload line of a definition belongs."""
        lines, definition = self.dataset.workloads(self.stated(path)), self.definition(path)
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

    def reference_line(self, path: Path) -> int:
        """Return the line on which a definition states its reference, counted from 1."""
        return self.dataset.load(self.stated(path)).lines(("reference",)) or 1

    def constraint_line(self, path: Path, text: str) -> int | None:
        """Return the line on which a definition states a constraint, counted from 1, or `None`."""
        loaded = self.dataset.load(self.stated(path))
        stated = loaded.value.constraints if loaded.value is not None else ()
        return loaded.lines(("constraints", stated.index(text))) if text in stated else None

    def workload(self, path: Path, uuid: str) -> Workload | None:
        """Return one readable workload of a definition, in scope or not."""
        line = self._by_uuid(path).get(uuid)
        return None if line is None else line.value

    def _by_uuid(self, path: Path) -> dict[str, Loaded[Workload]]:
        if path not in self._lines:
            lines = reversed(self.dataset.workloads(self.stated(path)))  # of two with one uuid the first is meant
            self._lines[path] = {line.value.uuid: line for line in lines if line.value is not None}
        return self._lines[path]

    def problems(self, path: Path) -> tuple[Fault, ...]:
        """Return all that is wrong or odd with a definition's file, its workloads and its solutions."""
        return self.dataset.problems(self.stated(path))

    def why_unjudgeable(self, path: Path) -> Fault | None:
        """Return the fault of a definition that leaves open what is right, or `None`."""
        return self.dataset.why_unjudgeable(self.stated(path))

    def notes(self, path: Path) -> list[str]:
        """Return what was changed in reading a definition's file, a line for each."""
        return [f"{path}: {note}" for note in self.dataset.load(self.stated(path)).notes]

    def data_roots(self, path: Path) -> dict[str, Path]:
        """Return the folders below which the stored tensors of a definition's workloads lie, by uuid."""
        roots = self.dataset.roots(self.stated(path))
        return {uuid: roots[line.path] for uuid, line in self._by_uuid(path).items()}

    def unreadable(self) -> list[Unreadable]:
        """Return the solution files that cannot be read, whatever they are for."""
        groups = self.dataset.unreadable_solutions().items()
        return [Unreadable(loaded.path, loaded.faults, name) for name, group in groups for loaded in group]

    @cached_property
    def closed(self) -> dict[Path, Unreadable]:
        """The folders that cannot be looked into: of definitions, workloads or solutions."""
        return {fault.path: Unreadable(fault.path, (fault,), "") for fault in self.dataset.closed_folders()}


def _key(solution: Solution, taken: Container[str]) -> str:
    if solution.name not in taken:
        return solution.name
    key = own = f"{solution.author}.{solution.name}"
    number = 1
    while key in taken:
        number += 1
        key = f"{own}.{number}"
    return key
