"""Where the workloads of a data set lie: folders of files named after definitions, and files that are for several."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.data import discover
from pytest_flashinfer.data.files import read_text
from pytest_flashinfer.data.traces import load_workloads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_flashinfer.data.faults import Fault, Loaded
    from pytest_flashinfer.data.model import Definition, Workload

_NOBODY = ""  # for whom a line is that tells no definition
_SOL_WORKLOADS, _SOL_DEFINITION = "workload.jsonl", "definition.json"  # side by side: a SOL-ExecBench problem


class WorkloadFiles:
    """The files of workloads in `places`: folders and files. `closed` and `odd` as in discover.py."""

    def __init__(self, places: Sequence[Path], closed: list[OSError], odd: list[Path]) -> None:
        self.places = tuple(places)
        self._closed, self._odd = closed, odd
        self._shared: dict[Path, dict[str, list[Loaded[Workload]]]] = {}

    @cached_property
    def folders(self) -> dict[Path, dict[str, list[Path]]]:
        """The files of each folder by their stem, which is a definition's name."""
        return {
            place: discover.workload_files(place, self._closed, self._odd) for place in self.places if place.is_dir()
        }

    def read(self, path: Path, definition: Definition) -> list[Loaded[Workload]]:
        """Read the workloads of the definition in a file, in the order of their lines.

        They are `<op_type>/<name>.jsonl` below a workload folder, or else any `<name>.jsonl` there, and the lines for
        this definition in files that are given themselves.
        """
        found: list[Loaded[Workload]] = []
        for file, shared in self._files_of(definition):
            found += self._lines_for(file, definition.name) if shared else load_workloads(file, definition.name)
        beside = path.with_name(_SOL_WORKLOADS)
        if not found and definition.form == 6 and beside.is_file():  # noqa: PLR2004 - SOL-ExecBench
            found += load_workloads(beside, definition.name)
        return found

    def text(self, path: Path, definition: Definition | None) -> str:
        """Give the text of all files in which workloads of the definition in a file may be, without parsing any."""
        files = [] if definition is None else [file for file, _ in self._files_of(definition)]
        texts = (read_text(file)[0] for file in [*files, path.with_name(_SOL_WORKLOADS)])
        return "\n".join(filter(None, texts))

    def stray(self, names: Collection[str]) -> tuple[list[str], list[Path]]:
        """Give those of the definitions that have no file, and the files in folders that none is named after."""
        found = [(name, file) for index in self.folders.values() for name, files in index.items() for file in files]
        named = {name for name, _ in found}
        shared = any(not place.is_dir() for place in self.places)
        without = [] if shared else sorted(name for name in names if name not in named)
        return without, sorted(file for name, file in found if name not in names)

    def unread(self, definitions: Mapping[str, Collection[Definition]]) -> Iterator[tuple[Path, Path | None]]:
        """Yield the files in folders that no definition's workloads are read from, with the file that is read instead.

        `definitions` are all, by their names.
        """
        for index in self.folders.values():
            for name, files in index.items():
                found = (file for each in definitions.get(name, ()) for file, _ in self._files_of(each))
                read = [file for file in found if file in files]
                beside = name == Path(_SOL_WORKLOADS).stem
                for file in files:
                    if file not in read and not (beside and file.with_name(_SOL_DEFINITION).is_file()):
                        yield file, read[0] if read else None

    def nobodys(self, names: Collection[str]) -> Iterator[Fault]:
        """Yield what is wrong with the lines that are for no definition, in files for several that have been read.

        `names` are those of all definitions: what a file holds that is named after one is that one's.
        """
        for file, lines in self._shared.items():
            if file.stem not in names:
                yield from (fault for line in lines.get(_NOBODY, ()) for fault in line.faults)

    def empty(self) -> list[Path]:
        """List the folders that hold no workloads."""
        return [place for place, index in self.folders.items() if not index]

    def root_of(self, file: Path) -> Path:
        """Give the root of the data set, below which the stored tensors of a file of workloads lie."""
        for place in self.places:
            if place.is_dir() and file.is_relative_to(place):
                return place if (place / "blob").is_dir() else place.parent
        for folder in file.parents:
            if (folder / "blob").is_dir():
                return folder
        return file.parent

    def _files_of(self, definition: Definition) -> Iterator[tuple[Path, bool]]:
        """Yield the files in which workloads of a definition are looked for, and whether others' may be there too."""
        for place in self.places:
            if not place.is_dir():
                yield place, True
                continue
            files = self.folders[place].get(definition.name, [])
            home = [file for file in files if file.parent.name == definition.op_type]
            yield from ((file, False) for file in home or files)

    def _lines_for(self, file: Path, name: str) -> list[Loaded[Workload]]:
        """Lines of a file that is for several definitions: those of others are left to the others."""
        if file.stem == name:
            return load_workloads(file, name)
        if file not in self._shared:  # once for all definitions: there may be hundreds of them, and of such files
            self._shared[file] = defaultdict(list)
            for line in load_workloads(file):
                raw = None if line.claim else line.canonical()
                owner = raw.get("definition") if isinstance(raw, dict) else line.claim
                self._shared[file][owner if isinstance(owner, str) else _NOBODY].append(line)
        return self._shared[file].get(name, [])
