"""A data set: definitions with their workloads and solutions, found when they are first asked for."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_flashinfer.data import discover
from pytest_flashinfer.data.faults import Fault, Loaded, cannot_enter, unique
from pytest_flashinfer.data.files import read_text
from pytest_flashinfer.data.load import load_definition, load_solution, load_workloads
from pytest_flashinfer.data.nearest import nearest
from pytest_flashinfer.data.rules import check_definition, check_folder
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.workload_rules import check_workloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Solution, Workload

_SOL_WORKLOADS = "workload.jsonl"  # beside the definition.json of a SOL-ExecBench problem


class DataSet:
    """An index of definitions, solutions and workloads below some folders; nothing is read before it is needed.

    Each argument lists folders and files. Files are read once: what is judged is what was read.
    """

    def __init__(self, definitions: Sequence[Path], solutions: Sequence[Path], workloads: Sequence[Path]) -> None:
        self.definition_paths = tuple(definitions)
        self.solution_paths = tuple(solutions)
        self.workload_paths = tuple(workloads)
        self._closed: list[OSError] = []
        self._others: list[Path] = []  # Python files in the folders of solutions
        self._definitions: dict[Path, Loaded[Definition]] = {}
        self._workloads: dict[Path, list[Loaded[Workload]]] = {}
        self._shared: dict[Path, dict[str, list[Loaded[Workload]]]] = {}

    def definition_files(self) -> list[Path]:
        """List the definition files, sorted within each folder."""
        return list(self._definition_files)

    @cached_property
    def _definition_files(self) -> list[Path]:
        return discover.definition_files(self.definition_paths, self._closed)

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

    def is_ambiguous(self, name: str) -> bool:
        """Whether several files define this name, so that nobody can tell which one a solution is for."""
        return len(self.names.get(name, ())) > 1

    def workloads(self, path: Path) -> list[Loaded[Workload]]:
        """Read the workloads of the definition in a file, once, in the order of their lines.

        They are `<op_type>/<name>.jsonl` below a workload folder, or else any `<name>.jsonl` there, and the lines for
        this definition in files that are given themselves.
        """
        if path not in self._workloads:
            value = self.load(path).value
            self._workloads[path] = [] if value is None else self._find_workloads(path, value)
        return self._workloads[path]

    def _find_workloads(self, path: Path, definition: Definition) -> list[Loaded[Workload]]:
        found: list[Loaded[Workload]] = []
        for file, shared in self._workload_files(definition):
            found += self._lines_for(file, definition.name) if shared else load_workloads(file, definition.name)
        beside = path.with_name(_SOL_WORKLOADS)
        if not found and definition.form == 6 and beside.is_file():  # noqa: PLR2004 - SOL-ExecBench
            found += load_workloads(beside, definition.name)
        return found

    def _workload_files(self, definition: Definition) -> Iterator[tuple[Path, bool]]:
        """Yield the files in which workloads of a definition are looked for, and whether others' may be there too."""
        for place in self.workload_paths:
            if not place.is_dir():
                yield place, True
                continue
            files = self._workload_index[place].get(definition.name, [])
            home = [file for file in files if file.parent.name == definition.op_type]
            yield from ((file, False) for file in home or files)

    def stray_workloads(self) -> tuple[list[str], list[Path]]:
        """Give the definitions without a workload file, and the files in workload folders that none is named after."""
        indices = self._workload_index.values()
        files = [file for index in indices for name, found in index.items() if name not in self.names for file in found]
        named = {name for index in indices for name in index}
        shared = any(not place.is_dir() for place in self.workload_paths)
        return [] if shared else sorted(self.names.keys() - named), sorted(files)

    def workload_text(self, path: Path) -> str:
        """Give the text of all files in which workloads of the definition in a file may be, without parsing any."""
        value = self.load(path).value
        files = [] if value is None else [file for file, _ in self._workload_files(value)]
        texts = (read_text(file)[0] for file in [*files, path.with_name(_SOL_WORKLOADS)])
        return "\n".join(filter(None, texts))

    def _lines_for(self, file: Path, name: str) -> list[Loaded[Workload]]:
        """Lines of a file that is for several definitions: those of others are left to the others."""
        if file.stem == name:
            return load_workloads(file, name)
        if file not in self._shared:  # once for all definitions: there may be hundreds of them, and of such files
            self._shared[file] = defaultdict(list)
            for line in load_workloads(file):
                raw = None if line.claim else line.canonical()
                owner = raw.get("definition") if isinstance(raw, dict) else line.claim
                if isinstance(owner, str):
                    self._shared[file][owner].append(line)
        return self._shared[file].get(name, [])

    @cached_property
    def _workload_index(self) -> dict[Path, dict[str, list[Path]]]:
        places = (place for place in self.workload_paths if place.is_dir())
        return {place: discover.workload_files(place, self._closed) for place in places}

    def root_of(self, workload_file: Path) -> Path:
        """Give the root of the data set, below which the stored tensors of a workload file lie."""
        for place in self.workload_paths:
            if place.is_dir() and workload_file.is_relative_to(place):
                return place if (place / "blob").is_dir() else place.parent
        for folder in workload_file.parents:
            if (folder / "blob").is_dir():
                return folder
        return workload_file.parent

    @cached_property
    def solutions(self) -> list[Loaded[Solution]]:
        """All solutions, also broken ones; files that are something else are left out."""
        return [loaded for loaded in self._read_solutions if loaded.value is not None or loaded.faults]

    @cached_property
    def _read_solutions(self) -> list[Loaded[Solution]]:
        files = discover.solution_files(self.solution_paths, self._closed, self._others)
        return [load_solution(path) for path in files]

    def something_else(self) -> list[Fault]:
        """Say what JSON files are that were named as solutions and are none."""
        named = set(self.solution_paths)
        return [fault for loaded in self._read_solutions if loaded.path in named for fault in _no_solution(loaded)]

    def unused_modules(self) -> list[Path]:
        """List the Python files in the folders of solutions that name no definition, and are no solution's sources."""
        values = ((each.path.parent, each.value) for each in self.solutions if each.value is not None)
        used = {folder / source.path for folder, value in values for source in value.sources}
        return [path for path in self._others if path not in used]

    def closed_folders(self) -> tuple[Fault, ...]:
        """Say which folders cannot be looked into, and why."""
        _ = self._definition_files, self._workload_index, self.solutions
        return unique(cannot_enter(error) for error in self._closed)

    def empty_workloads(self) -> list[Path]:
        """List the folders of workloads that hold none."""
        return [place for place, index in self._workload_index.items() if not index]

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
        for path in self._definition_files:
            loaded = self.load(path)
            if loaded.value is None and name in (path.stem, loaded.raw.get("name") if loaded.raw else None):
                return f", whose file is broken: {next(iter(loaded.faults), path)}"
        near = nearest(name, self.names)
        return f"; did you mean {near!r}?" if near else "; there is none of a similar name"

    def problems(self, path: Path) -> tuple[Fault, ...]:
        """Say all that is wrong or odd with a definition file, its workloads and its solutions."""
        loaded = self.load(path)
        found = [*check_definition(loaded)]
        for place in self.definition_paths:
            found += check_folder(loaded, place) if place.is_dir() else ()
        if loaded.value is None:
            return unique(found)
        name = loaded.value.name
        others = [str(other) for other in self.names.get(name, ()) if other != path]
        if others:
            message = f"name {name!r} is also that of {', '.join(others)}: rename one; no solution of it is run"
            found.append(loaded.fault(("name",), message))
        lines = self.workloads(path)
        found += check_workloads(lines, loaded.value, self.root_of(lines[0].path) if lines else None)
        found += self._solution_problems(name)
        return unique(found)

    def _solution_problems(self, name: str) -> list[Fault]:
        found: list[Fault] = []
        first: dict[str, Path] = {}
        for loaded in self.solutions_for(name):
            found += check_solution(loaded)
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
    return not isinstance(raw, dict) or bool({"definition", "spec", "sources"} & raw.keys())
