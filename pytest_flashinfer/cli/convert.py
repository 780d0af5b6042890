"""`convert IN OUT`: any known form in, the canonical one out, or for solutions the form that OUT is called by.

What is written is read back and must be the same.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.cli.file_kinds import BROKEN, NAMELESS, UNKNOWN, kind_of, owner_of, sort_by_kind
from pytest_flashinfer.data import sniff, write
from pytest_flashinfer.data.agent import load_agent
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.faults import unique
from pytest_flashinfer.data.jsontext import read_json
from pytest_flashinfer.data.misspelt import check_record
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.solution_forms import CONFIG
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_traces
from pytest_flashinfer.data.write_solution import CannotWriteError, module_text, write_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_flashinfer.data.faults import Fault, Loaded
    from pytest_flashinfer.data.model import Solution, Trace

_SUFFIXES = {
    sniff.DEFINITION: (".json",),
    sniff.TRACE: (".jsonl",),
    sniff.SOLUTION: (".json", ".py", ""),
    "agent": (".json",),
}


class CannotConvertError(ValueError):
    """Why nothing is written, in one line."""


class _FaultyError(Exception):
    """A source has faults; they are told one a line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__()
        self.faults = unique(faults)


def run(source: Path, target: Path, definition: str | None, *, force: bool) -> int:
    """Convert a file, or every file below a folder that is no solution; return 1 where one has faults.

    Raises CannotConvertError where OUT does not fit IN, OSError where a file cannot be read or written.
    """
    source.stat()
    if not source.is_dir() or (source / CONFIG).is_file():
        return _one(source, _named(source, target), definition, force=force)
    kinds = sort_by_kind([source])
    for path in (*kinds.get(UNKNOWN, ()), *kinds.get(NAMELESS, ())):
        sys.stdout.write(f"{path}: no known record: left out\n")
    files = sorted(path for kind, group in kinds.items() if kind in (BROKEN, *_SUFFIXES) for path in group)
    targets = {path: _mirrored(path, source, target) for path in files}
    _demand_one_source_each({path: place for path, place in targets.items() if path not in kinds.get(BROKEN, ())})
    return max([_one(path, place, definition, force=force) for path, place in targets.items()], default=0)


def _demand_one_source_each(targets: Mapping[Path, Path]) -> None:
    first: dict[Path, Path] = {}
    for path, place in targets.items():
        other = first.setdefault(place, path)
        if other != path:
            raise CannotConvertError(f"{other} and {path} would both be {place}: rename one of them")


def _mirrored(path: Path, source: Path, target: Path) -> Path:
    place = target / path.relative_to(source)
    return place.with_name(f"{place.name}.json") if path.is_dir() else place.with_suffix(_plain_suffix(path))


def _plain_suffix(path: Path) -> str:
    return ".jsonl" if kind_of(path) == sniff.TRACE else ".json"


def _named(source: Path, target: Path) -> Path:
    """Into a folder that exists a single file goes under its own name."""
    if target.is_dir() and not source.is_dir() and kind_of(source) in (sniff.DEFINITION, sniff.TRACE):
        return target / f"{source.stem}{_plain_suffix(source)}"
    return target


def _one(source: Path, target: Path, definition: str | None, *, force: bool) -> int:
    kind = kind_of(source)
    if kind == BROKEN:
        return _tell(read_json(source).faults)
    if kind not in _SUFFIXES:
        raise CannotConvertError(
            f"{source}: {'no known record' if kind == UNKNOWN else f'{kind}: it has one form only'}"
        )
    if target.suffix not in _SUFFIXES[kind]:
        wanted = " or ".join(suffix or "a folder" for suffix in _SUFFIXES[kind])
        raise CannotConvertError(f"{target}: {sniff.ARTICLE[kind]} is written to {wanted}")
    if target.exists() and not force and not (target.is_dir() and not any(target.iterdir())):
        raise CannotConvertError(f"{target} exists: name another place, or give --force to overwrite it")
    try:
        if kind == sniff.DEFINITION:
            _definition(source, target)
        elif kind == sniff.SOLUTION:
            _solution(source, target)
        elif kind == "agent":
            _agent(source, target)
        else:
            _lines(source, target, definition)
    except _FaultyError as error:
        return _tell(error.faults)
    sys.stdout.write(f"wrote {target}{'/' if target.is_dir() else ''}\n")
    return 0


def _tell(faults: Iterable[Fault]) -> int:
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    return 1


def _value(loaded: Loaded[Any], found: Iterable[Fault]) -> Any:
    """Give what was read, with its notes told; `found` is what a check says of it. Raises _FaultyError."""
    faults = [fault for fault in (*loaded.faults, *found) if fault.kind == "fault"]
    if loaded.value is None or faults:
        raise _FaultyError(faults or loaded.warnings)
    for note in loaded.notes:
        sys.stderr.write(f"note: {loaded.path}:{loaded.line}: {note}\n")
    return loaded.value


def _save(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode())  # not as text: line breaks stay as they are


def _same(target: Path, written: object, read: object) -> None:
    if written != read:
        raise CannotConvertError(f"{target}: what was written does not read back as the same record: keep the original")


def _definition(source: Path, target: Path) -> None:
    loaded = load_definition(source)
    value = _value(loaded, check_definition(loaded))
    _save(target, write.to_text(write.definition_document(value)))
    _same(target, value, load_definition(target).value)


def _agent(source: Path, target: Path) -> None:
    value = _value(load_agent(source), ())
    _save(target, write.to_text(value.document))
    _same(target, value, load_agent(target).value)


def _lines(source: Path, target: Path, definition: str | None) -> None:
    lines = load_traces(source, definition or owner_of(source))
    found = [(loaded, (*check_record("trace", loaded), *_beyond_json(loaded))) for loaded in lines]
    faults = [fault for _, told in found for fault in told if fault.kind == "fault"]
    if faults:
        raise _FaultyError(faults)
    text = _text([_value(*each) for each in found])
    _save(target, text)
    # As text: an error that is NaN is not equal to itself.
    _same(target, text, _text([loaded.value for loaded in load_traces(target) if loaded.value is not None]))


def _text(traces: Iterable[Trace]) -> str:
    return "".join(write.to_line(write.trace_document(trace)) for trace in traces)


def _beyond_json(loaded: Loaded[Trace]) -> Iterator[Fault]:
    """Yield the numbers of a line that JSON does not have, but for the errors that are written as words."""
    if loaded.value is not None:
        for where, number in write.beyond_json(write.trace_document(loaded.value)):
            message = f"{number} is no number of JSON: write another, or leave the key out"
            yield loaded.fault(where, message)


def _solution(source: Path, target: Path) -> None:
    loaded = load_solution(source)
    value: Solution = _value(loaded, check_solution(loaded))
    try:
        if target.suffix == ".json":
            _save(target, write.to_text(write.solution_document(value)))
        elif target.suffix == ".py":
            _save(target, module_text(value))
        else:
            write_folder(value, target)
    except CannotWriteError as error:
        raise CannotConvertError(f"{target}: {error}") from error
    again = load_solution(target).value
    if again is not None and target.suffix == ".py":  # its source is named as the file, and says more than before
        kept = again.sources[0].content.startswith(value.sources[0].content.rstrip())
        sources = value.sources if kept else again.sources
        again = replace(again, entry_file=value.entry_file, sources=sources)
    _same(target, _in_order(value), again and _in_order(again))


def _in_order(solution: Solution) -> Solution:
    """Sort the sources as a folder has them: their order says nothing."""
    return replace(solution, sources=tuple(sorted(solution.sources, key=lambda source: source.path)))
