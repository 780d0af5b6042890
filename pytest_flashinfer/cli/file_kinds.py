"""What the files below a folder are, told by their content rather than by where they lie."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from pytest_flashinfer.data import sniff
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.discover import TRACE_SUFFIX, is_misnamed, lacks_definition, may_be_solution, walk
from pytest_flashinfer.data.jsontext import read_json, read_json_lines
from pytest_flashinfer.data.solution_forms import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BROKEN, UNKNOWN = "broken", "unknown"  # not JSON; JSON, but none of the records
MISNAMED = "misnamed"  # not read for its name
NAMELESS = "nameless"  # a solution, but for the name of its definition
_SUFFIXES = (".json", ".jsonl", ".py")
_SOL = ("workload.jsonl", "definition.json")
MOST_LINES = 1000  # of which none says what it is
Kinds = dict[str, list["Path"]]


def sort_by_kind(paths: Iterable[Path], closed: list[OSError] | None = None) -> Kinds:
    """Sort files and all that lies below folders by the kind of record they hold.

    Why a folder cannot be looked into is added to `closed`. Raises OSError where there is no such list.
    """
    kinds: Kinds = defaultdict(list)
    for path in paths:
        for file in _below(path, closed):
            if (file != path or file.suffix.isupper()) and is_misnamed(file, *_SUFFIXES):
                kind = MISNAMED
            else:
                kind = NAMELESS if file != path and _is_nameless(file) else kind_of(file)
            kinds[kind].append(file)
    return kinds


def _below(path: Path, closed: list[OSError] | None) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, names in walk(path, CONFIG, closed):
        if CONFIG in names:
            yield folder
            yield from (folder / name for name in names if name.endswith(TRACE_SUFFIX))
            continue
        for file in (folder / name for name in names):
            module = file.suffix == ".py"
            taken = may_be_solution(file) or lacks_definition(file) if module else file.suffix in _SUFFIXES
            if taken or is_misnamed(file, *_SUFFIXES):
                yield file


def _is_nameless(file: Path) -> bool:
    return file.suffix == ".py" and not may_be_solution(file)


def kind_of(path: Path) -> str:
    """Tell the kind of record that a file, or the folder of a solution, holds."""
    if path.is_dir() or path.suffix == ".py" or path.name == CONFIG:
        return sniff.SOLUTION
    if path.name.endswith(TRACE_SUFFIX):
        return "agent"
    if path.suffix == ".jsonl":
        return _kind_of_lines(path)
    document = read_json(path, nan_ok=True)
    if not document.readable:
        return BROKEN
    value = document.value
    if isinstance(value, list) and value and all(_told(part) == sniff.TRACE for part in value):
        return sniff.TRACE
    return sniff.SOLUTION if sniff.meant_as_solution(value) else _told(value)


def owner_of(path: Path) -> str:
    """Name the definition that the lines of a file are for where they do not say it: its own name, or its neighbour.

    A SOL-ExecBench problem is a folder with a definition and bare lines for it.
    """
    beside = path.with_name(_SOL[1])
    named = load_definition(beside).value if path.name == _SOL[0] and beside.is_file() else None
    return path.stem if named is None else named.name


def _kind_of_lines(path: Path) -> str:
    for document in islice(read_json_lines(path), MOST_LINES):
        kind = _told(document.value) if document.readable else UNKNOWN
        if kind != UNKNOWN:
            return kind
    return sniff.TRACE


def _told(value: object) -> str:
    kind = sniff.kind_of(value) or UNKNOWN
    return sniff.TRACE if kind == sniff.WORKLOAD else kind
