"""`validate PATH...`: what `test_schema` says of definitions, and the same for every other record, with nothing run."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.cli.annotations import summarise, write_found
from pytest_flashinfer.cli.file_kinds import BROKEN, MISNAMED, NAMELESS, UNKNOWN, Kinds, owner_of, sort_by_kind
from pytest_flashinfer.data import schema, sniff
from pytest_flashinfer.data.agent import load_agent
from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.data.discover import misnamed
from pytest_flashinfer.data.faults import Fault, cannot_enter, unique
from pytest_flashinfer.data.files import enter
from pytest_flashinfer.data.jsontext import read_json, read_json_lines
from pytest_flashinfer.data.misspelt import check_record
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.traces import MAX_FAULTY, load_traces
from pytest_flashinfer.report.numbers import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.faults import Loaded

FOLDERS = ("definitions", "solutions", "workloads")
AS_THEY_ARE = ("definitions", "workloads")  # also where they are named themselves: where a file lies there counts
_UNKNOWN_RECORD = (
    "none of the known records: no key tells what it is; a definition has axes, inputs, outputs and reference, a"
    " solution has spec and sources, a line has workload"
)
NO_RECORDS = (sniff.TIMINGS, MISNAMED, NAMELESS)  # which are not checked


def run(paths: Sequence[Path], *, verbose: bool) -> int:
    """Print one line per fault and warning, then a count; return 1 where there is a fault."""
    for path in paths:
        enter(path)  # raises for a path that does not exist, before anything is said of the others
    homes = [path for path in paths if (path / FOLDERS[0]).is_dir()]
    closed: list[OSError] = []
    kinds = sort_by_kind(paths, closed)
    files = sum(len(group) for kind, group in kinds.items() if kind not in NO_RECORDS)
    dataset = _dataset(paths, homes, kinds)
    found = unique([*map(cannot_enter, closed), *_dataset_problems(dataset, kinds), *_other_problems(kinds, paths)])
    if not files and not closed and all(fault.kind != "fault" for fault in found):  # no check has passed
        nothing = "nothing to check: there is no .json, .jsonl or .py record"
        found += tuple(Fault(path, None, "", nothing) for path in paths)
    write_found(found, _notes(dataset, kinds) if verbose else ())
    faults = sum(fault.kind == "fault" for fault in found)
    total = f"{count(files, 'file')}: {count(faults, 'fault')}, {count(len(found) - faults, 'warning')}"
    sys.stderr.write(f"{total}\n")
    summarise(found, total)
    return 1 if faults else 0


def _dataset(given: Sequence[Path], homes: Sequence[Path], kinds: Kinds) -> DataSet:
    """Take a data set's folders as they are, so that a file in the wrong one is seen; other files by content.

    What is no JSON may be a definition: of a solution for it, it is to be said that its file is broken.
    """
    places: dict[str, list[Path]] = {}
    own = {name: [home / name for home in homes if (home / name).is_dir()] for name in FOLDERS}
    for path in given:
        if path.name in AS_THEY_ARE and path.is_dir() and not _inside(path, homes):
            own[path.name].append(path)
    taken = [*homes, *(folder for folders in own.values() for folder in folders)]
    broken = [path for path in kinds.get(BROKEN, ()) if not _inside(path, taken)]
    for name, kind in zip(FOLDERS, ("definition", "solution", "trace"), strict=True):
        loose = [path for path in kinds.get(kind, ()) if not _inside(path, [*homes, *own[name]])]
        places[name] = [*own[name], *loose, *(broken if kind == "definition" else ())]
    return DataSet(places["definitions"], places["solutions"], places["workloads"])


def _inside(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _dataset_problems(dataset: DataSet, kinds: Kinds) -> Iterator[Fault]:
    for path in dataset.definition_files():
        yield from dataset.problems(path)
    if dataset.names:  # pytest may be given a part of them; what is handed in has to be whole
        yield from (replace(fault, kind="fault") for fault in dataset.unknown_solutions())
    if dataset.workload_files.places:
        yield from dataset.without_workloads()
    if dataset.names:
        yield from dataset.unread_workloads()
    for path in dataset.unused_modules(kinds.get(NAMELESS, ())):
        yield Fault(path, None, "", "has no line `definition = ...`: it is not run", kind="warning")
    for loaded in dataset.solutions:
        if loaded.value is None or loaded.value.definition not in dataset.names:
            yield from check_solution(loaded)


def _other_problems(kinds: Kinds, given: Sequence[Path]) -> Iterator[Fault]:
    """Yield the faults of the records that `test_schema` does not see, and those of every line of a trace file."""
    for path in kinds.get("trace", ()):
        for loaded in load_traces(path, owner_of(path)):
            yield from check_record("trace", loaded)
    for path in kinds.get("agent", ()):
        yield from load_agent(path).faults
    for name in ("calls", "result"):
        for path in kinds.get(name, ()):
            yield from _record_problems(name, path)
    for path in kinds.get(BROKEN, ()):
        yield from read_json(path).faults
    yield from _unchecked(kinds, given)


def _unchecked(kinds: Kinds, given: Sequence[Path]) -> Iterator[Fault]:
    """Yield what nobody can check: a fault of files that were named themselves."""
    for path in kinds.get(UNKNOWN, ()):
        yield Fault(path, 1, "", _UNKNOWN_RECORD, kind="fault" if path in given else "warning")
    for path in kinds.get(MISNAMED, ()):
        yield Fault(path, None, "", misnamed(path), kind="fault" if path in given else "warning")
    for path in kinds.get(sniff.TIMINGS, ()):
        if path in given:
            yield Fault(path, 1, "", f"this is {sniff.ARTICLE[sniff.TIMINGS]}: there is nothing to check in it")


def _record_problems(name: str, path: Path) -> Iterator[Fault]:
    documents = read_json_lines(path) if path.suffix == ".jsonl" else [read_json(path)]
    found = (fault for document in documents for fault in schema.check_document(name, document))
    yield from islice(found, MAX_FAULTY)


def _notes(dataset: DataSet, kinds: Kinds) -> Iterator[str]:
    read: list[Loaded[Any]] = [dataset.load(path) for path in dataset.definition_files()]
    read += [*dataset.solutions, *map(load_agent, kinds.get("agent", ()))]
    for path in kinds.get("trace", ()):
        read += load_traces(path, owner_of(path))
    for loaded in read:
        yield from (f"{loaded.path}:{loaded.line}: {note}" for note in loaded.notes)
