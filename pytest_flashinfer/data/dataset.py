"""A data set: definitions with their workloads and solutions, found when they are first asked for."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_flashinfer.data import discover, sniff
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.entry_rules import check_entry
from pytest_flashinfer.data.faults import Fault, Loaded, cannot_enter, unique
from pytest_flashinfer.data.jsontext import read_json
from pytest_flashinfer.data.judgeable import why_unjudgeable
from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.data.rules import check_definition, check_folder, check_name
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.workload_files import WorkloadFiles
from pytest_flashinfer.data.workload_rules import check_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Solution, Workload


class DataSet:
    """An index of definitions, solutions and workloads below some folders; nothing is read before it is needed.

    Each argument lists folders and files. Files are read once: what is judged is what was read.
    """

    def __init__(self, definitions: Sequence[Path], solutions: Sequence[Path], workloads: Sequence[Path]) -> None:
        self.definition_paths = tuple(definitions)
        self.solution_paths = tuple(solutions)
        self._closed: list[OSError] = []
        self._odd: list[Path] = []
        self.workload_files = WorkloadFiles(workloads, self._closed, self._odd)
        self._others: list[Path] = []  # Python files in the folders of solutions
        self._definitions: dict[Path, Loaded[Definition]] = {}
        self._workloads: dict[Path, list[Loaded[Workload]]] = {}
        self._unjudgeable: dict[Path, Fault | None] = {}

    def definition_files(self) -> list[Path]:
        """List the definition files, sorted within each folder."""
        return list(self._definition_files)

    @cached_property
    def _definition_files(self) -> list[Path]:
        return discover.definition_files(self.definition_paths, self._closed, self._odd)

    def load(self, path: Path) -> Loaded[Definition]:
        """Read a definition file, once."""
        if path not in self._definitions:
            self._definitions[path] = load_definition(path)
        return self._definitions[path]

    @cached_property
    def names(self) -> dict[str, list[Path]]:
        """The definition files by the name of their definition; more than one is a fault of all of them."""
        found: dict[str, list[Path]] = defaultdict(list)
        for path in self._definition_files:
            value = self.load(path).value
            if value is not None:
                found[value.name].append(path)
        return dict(found)

    def why_unjudgeable(self, path: Path) -> Fault | None:
        """Say which fault of the definition in a file leaves open what is right, `None` where none does."""
        if path not in self._unjudgeable:
            self._unjudgeable[path] = why_unjudgeable(self.load(path))
        return self._unjudgeable[path]

    def is_ambiguous(self, name: str) -> bool:
        """Whether several files define this name, so that nobody can tell which one a solution is for."""
        return len(self.names.get(name, ())) > 1

    def workloads(self, path: Path) -> list[Loaded[Workload]]:
        """Read the workloads of the definition in a file, once, in the order of their lines."""
        if path not in self._workloads:
            value = self.load(path).value
            self._workloads[path] = [] if value is None else self.workload_files.read(path, value)
        return self._workloads[path]

    def roots(self, path: Path) -> dict[Path, Path]:
        """Give the root below which stored tensors lie, for each file with workloads of the definition in a file."""
        files = dict.fromkeys(line.path for line in self.workloads(path))
        return {file: self.workload_files.root_of(file) for file in files}

    def workload_text(self, path: Path) -> str:
        """Give the text of all files in which workloads of the definition in a file may be, without parsing any."""
        return self.workload_files.text(path, self.load(path).value)

    @cached_property
    def solutions(self) -> list[Loaded[Solution]]:
        """All solutions, also broken ones; files that are something else are left out."""
        return [loaded for loaded in self._read_solutions if loaded.value is not None or loaded.faults]

    @cached_property
    def _read_solutions(self) -> list[Loaded[Solution]]:
        files = discover.solution_files(self.solution_paths, self._closed, self._others, self._odd)
        return [load_solution(path) for path in files]

    def something_else(self) -> list[Fault]:
        """Say what JSON files are that were named as solutions and are none."""
        named = set(self.solution_paths)
        return [fault for loaded in self._read_solutions if loaded.path in named for fault in _no_solution(loaded)]

    def of_no_kind(self) -> list[Fault]:
        """Say which JSON files in the folders of solutions are nothing at all: no object, and no other record."""
        named = set(self.solution_paths)
        found = [fault for loaded in self._read_solutions if loaded.path not in named for fault in _no_solution(loaded)]
        return [fault for fault in found if sniff.kind_of(read_json(fault.path, nan_ok=True).value) is None]

    def unused_modules(self, more: Iterable[Path] = ()) -> list[Path]:
        """List the Python files in the folders of solutions that name no definition, and are no solution's sources.

        So for `more` of them, from other folders.
        """
        values = ((each.path.parent, each.value) for each in self.solutions if each.value is not None)
        used = {folder / source.path for folder, value in values for source in value.sources}
        return [path for path in dict.fromkeys((*self._others, *more)) if path not in used]

    def closed_folders(self) -> tuple[Fault, ...]:
        """Say which folders cannot be looked into, and why."""
        self._find_all()
        return unique(cannot_enter(error) for error in self._closed)

    def misnamed_files(self) -> tuple[Fault, ...]:
        """Warn of the files that are not read for their names alone."""
        self._find_all()
        return unique(Fault(path, None, "", discover.misnamed(path), kind="warning") for path in self._odd)

    def _find_all(self) -> None:
        _ = self._definition_files, self.workload_files.folders, self.solutions

    @cached_property
    def _solutions_by_definition(self) -> dict[str, list[Loaded[Solution]]]:
        found: dict[str, list[Loaded[Solution]]] = defaultdict(list)
        for loaded in self.solutions:
            found[self._claim(loaded)].append(loaded)
        return dict(found)

    def _claim(self, loaded: Loaded[Solution]) -> str:
        """Give the definition that a solution is for; a broken one may still lie in its folder."""
        if loaded.value is not None:
            return loaded.value.definition
        said = loaded.raw.get("definition") if isinstance(loaded.raw, dict) else loaded.claim
        return (
            said if isinstance(said, str) else next((p.name for p in loaded.path.parents if p.name in self.names), "")
        )

    def solutions_for(self, name: str) -> list[Loaded[Solution]]:
        """Give the solutions of a definition, ordered by name; broken ones, which have no value, come last."""
        found = self._solutions_by_definition.get(name, [])
        return sorted(found, key=lambda loaded: (loaded.value is None, loaded.value.name if loaded.value else ""))

    @cached_property
    def solved(self) -> dict[str, int]:
        """The definitions that there are solutions for, and their places in the order of names."""
        names = sorted(self.names.keys() & self._solutions_by_definition.keys())
        return {name: place for place, name in enumerate(names)}

    def unknown_solutions(self) -> tuple[Fault, ...]:
        """Warn of solutions for definitions that do not exist, naming the nearest, and of broken ones for none."""
        found: list[Fault] = []
        for name, group in self._solutions_by_definition.items():
            if name in self.names:
                continue
            for loaded in group:
                if name:
                    message = f"unknown definition {name!r}{self._hint(name)}"
                    found.append(loaded.fault(("definition",), message, "warning"))
                found.extend(loaded.faults)
        return unique(found)

    def without_workloads(self) -> Iterator[Fault]:
        """Warn of the definitions that no line of a workload is for."""
        for name, paths in self.names.items():
            if not any(map(self.workloads, paths)):
                message = f"no workloads for {name}: nothing but test_sizes runs solutions; name a file {name}.jsonl"
                yield from (self.load(path).fault((), message, "warning") for path in paths)

    def unread_workloads(self) -> Iterator[Fault]:
        """Warn of the files in folders of workloads that no definition's lines are read from."""
        values = {name: [self.load(path).value for path in paths] for name, paths in self.names.items()}
        found = {name: [value for value in group if value is not None] for name, group in values.items()}
        broken = {path.stem for path in self._definition_files if self.load(path).value is None}
        for file, other in self.workload_files.unread(found):
            if other is not None:
                why = f"{other} is read for {file.stem} and this is not: move its lines there"
            elif file.stem in broken:
                continue  # whoever mends that one will see
            else:
                hint = did_you_mean(file.stem, self.names)
                why = f"no definition is called {file.stem!r}, and so nothing reads this{hint}"
            yield Fault(file, None, "", why, kind="warning")

    def unreadable_solutions(self) -> dict[str, list[Loaded[Solution]]]:
        """Give the solutions that cannot be read by the definition that they name or lie in the folder of, else `""`.

        A JSON object with nothing of a solution in it, as a package.json, is none.
        """
        found: dict[str, list[Loaded[Solution]]] = {}
        for name, group in self._solutions_by_definition.items():
            broken = [each for each in group if each.value is None and _is_meant(each.raw)]
            if broken:
                found[name] = broken
        return found

    def _hint(self, name: str) -> str:
        if not self._definition_files:
            return f": there is no definition in {', '.join(map(str, self.definition_paths))}"
        for path in self._definition_files:
            loaded = self.load(path)
            if loaded.value is None and name in (path.stem, loaded.raw.get("name") if loaded.raw else None):
                return f", whose file is broken: {next(iter(loaded.faults), path)}"
        return did_you_mean(name, self.names) or "; there is none of a similar name"

    def problems(self, path: Path) -> tuple[Fault, ...]:
        """Say all that is wrong or odd with a definition file, its workloads and its solutions."""
        loaded = self.load(path)
        found = [*check_definition(loaded), *check_name(loaded)]
        for place in self.definition_paths:
            found += check_folder(loaded, place) if place.is_dir() else ()
        if loaded.value is None:
            return unique(found)
        name = loaded.value.name
        others = [str(other) for other in self.names.get(name, ()) if other != path]
        if others:
            message = f"name {name!r} is also that of {', '.join(others)}: rename one; no solution of it is run"
            found.append(loaded.fault(("name",), message))
        found += check_workloads(self.workloads(path), loaded.value, self.roots(path))
        found += self._solution_problems(loaded.value)
        return unique(found)

    def _solution_problems(self, definition: Definition) -> list[Fault]:
        found: list[Fault] = []
        first: dict[str, Path] = {}
        for loaded in self.solutions_for(definition.name):
            found += [*check_solution(loaded), *check_entry(loaded, definition)]
            if loaded.value is None:
                continue
            other = first.setdefault(loaded.value.name, loaded.path)
            if other != loaded.path:
                found.append(loaded.fault(("name",), f"name {loaded.value.name!r} is also that of {other}: rename one"))
        return found


def _no_solution(loaded: Loaded[Solution]) -> tuple[Fault, ...]:
    return loaded.warnings if loaded.value is None and not loaded.faults else ()


def _is_meant(raw: object) -> bool:
    """Whether a document that cannot become a solution was meant as one."""
    return not isinstance(raw, dict) or sniff.meant_as_solution(raw)
