"""Reading workload and trace files: one JSON object a line, in any of the forms that are found."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import schema, sniff, trace_records
from pytest_flashinfer.data.faults import Fault, JsonPath, Loaded
from pytest_flashinfer.data.files import MAX_BYTES, decode, reason_of, refuse
from pytest_flashinfer.data.jsontext import Document, parse_json, read_json, read_json_lines
from pytest_flashinfer.data.places import Places
from pytest_flashinfer.data.reader import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_flashinfer.data.model import Trace, Workload


MAX_FAULTY = 1000  # records of one file


def load_traces(path: Path, definition: str | None = None) -> list[Loaded[Trace]]:
    """Read all lines of a workload or trace file; never raises on bad content.

    `definition` names what the lines are for where they do not say it themselves, as a bare workload does not.
    """
    found: list[Loaded[Trace]] = []
    faulty = 0
    for document, where, value in _documents(path):
        found.append(_load(document, where, value, definition))
        faulty += bool(found[-1].faults)
        if faulty == MAX_FAULTY:
            fault = Fault(path, found[-1].line, "", f"{MAX_FAULTY} records so far have faults: the rest is not read")
            found.append(Loaded(None, path, (fault,), line=found[-1].line))
            break
    return found


def stream_traces(path: Path, definition: str | None = None) -> Iterator[tuple[int, Trace | Fault]]:
    """Yield the traces of a file with their lines, and in their place the first fault of lines that are none.

    For many thousand lines: three times as fast as `load_traces`, which also knows where every part stands, and only
    one line is held at a time. Lines count from 1, blank ones too. Never raises on bad content.
    """
    if path.suffix == ".json":
        for loaded in load_traces(path, definition):
            yield loaded.line, loaded.value if loaded.value is not None else loaded.faults[0]
        return
    reason = refuse(path)
    if reason:
        yield 1, Fault(path, 1, "", reason)
        return
    try:
        with path.open("rb") as file:
            for number, data in enumerate(iter(lambda: file.readline(MAX_BYTES + 1), b""), 1):
                if data.strip():
                    yield number, _quick(data) or _slow(data, path, number, definition)
    except (OSError, ValueError) as error:
        yield 1, Fault(path, None, "", f"cannot be read: {reason_of(error)}")


def _quick(data: bytes) -> Trace | None:
    """Read a line that is in the canonical form already, as nearly all are."""
    try:
        return trace_records.trace(json.loads(data))
    except (ValueError, RecursionError, Malformed):
        return None


def _slow(data: bytes, path: Path, number: int, definition: str | None) -> Trace | Fault:
    text, remark = decode(data)
    document = parse_json(text, path, line=number, nan_ok=True) if text.strip() else Document(path, line=number)
    if not document.readable:
        return next(iter(document.faults), Fault(path, number, "", remark or "not text"))
    loaded = _load(document, (), document.value, definition)
    return loaded.value if loaded.value is not None else loaded.faults[0]


def load_workloads(path: Path, definition: str | None = None) -> list[Loaded[Workload]]:
    """Read the workloads of a file, one `Loaded` per line, with `.line`; never raises on bad content.

    A line that is for another definition than the given one has a fault and no value.
    """
    return [_workload(loaded, definition) for loaded in load_traces(path, definition)]


def _workload(loaded: Loaded[Trace], definition: str | None) -> Loaded[Workload]:
    faults, value = loaded.faults, loaded.value.workload if loaded.value is not None else None
    if loaded.value is not None and definition is not None and loaded.value.definition != definition:
        message = (
            f"this line is for {loaded.value.definition!r}, its file for {definition!r}: move it or correct the name"
        )
        faults, value = (*faults, loaded.fault(("definition",), message)), None
    more = (loaded.notes, loaded.warnings, loaded.line, loaded.lines, loaded.raw, loaded.claim)
    return Loaded(value, loaded.path, faults, *more)


def _documents(path: Path) -> Iterator[tuple[Document, JsonPath, Any]]:
    """Yield each record with where it stands: on a line of its own, or in the list that a .json file holds."""
    if path.suffix != ".json":
        for document in read_json_lines(path):
            yield document, (), document.value
        return
    document = read_json(path, nan_ok=True)
    if document.readable and isinstance(document.value, list):
        for number, value in enumerate(document.value):
            yield document, (number,), value
    else:
        yield document, (), document.value


def _load(document: Document, prefix: JsonPath, value: Any, definition: str | None) -> Loaded[Trace]:
    line = document.position(prefix)[0] if prefix else document.line
    if not document.readable:
        return Loaded(None, document.path, document.faults, document.notes, line=document.faults[0].line or line)
    kind = sniff.kind_of(value)
    wrong = sniff.wrong_kind(value, sniff.TRACE) if kind != sniff.WORKLOAD else None
    if kind is None and not wrong and not any(key in value for key in ("axes", "inputs", "uuid")):
        wrong = "no workload or trace line: it has neither 'workload' nor 'axes' and 'inputs'"
    if wrong:
        fault = Fault(document.path, line, "", wrong)
        return Loaded(None, document.path, (*document.faults, fault), document.notes, line=line)
    raw, notes = canonical_line(value, definition)
    places = Places(document, prefix=prefix, wrapped="workload" if "workload" not in value else None)
    result: Loaded[Trace] = Loaded(None, document.path, line=line, lines=places, raw=raw)
    faults = list(document.faults)
    trace = None
    try:
        trace = trace_records.trace(raw)
    except Malformed as error:
        faults.extend(schema.malformed("trace", result, error))
    if trace is not None and not prefix and not document.faults:
        document.value = None  # of thousands of lines the parsed values take more memory than all else that is kept
        again = _Again(document, definition)
        told = (*document.notes, *notes)
        return Loaded(trace, document.path, (), told, (), line, places, again, trace.definition)
    return Loaded(trace, document.path, tuple(faults), (*document.notes, *notes), (), line, places, raw)


class _Again:
    """Parses a line once more; takes a third of the memory of a partial function."""

    __slots__ = ("definition", "document")

    def __init__(self, document: Document, definition: str | None) -> None:
        self.document, self.definition = document, definition

    def __call__(self) -> dict[str, Any]:
        value = parse_json(self.document.text, self.document.path, nan_ok=True).value
        return canonical_line(value, self.definition)[0]


def canonical_line(value: dict[str, Any], definition: str | None) -> tuple[dict[str, Any], list[str]]:
    """Bring a line into the canonical form: a trace with a uuid; the second part are notes on what was changed.

    What is inside of `value` is changed in place: copies of a large data set's workloads are a tenth of its reading.
    """
    notes: list[str] = []
    raw = dict(value)
    if "workload" not in raw:
        raw = {"definition": raw.pop("definition", None), "workload": raw}
        notes.append("a bare workload: read as a workload line")
    if raw.get("definition") is None and definition is not None:
        raw["definition"] = definition
        notes.append(f"no 'definition': taken to be {definition!r}")
    for key, empty in (("solution", ""), ("evaluation", {})):
        if raw.get(key) == empty and key in raw and raw[key] is not None:
            raw[key] = None
            notes.append(f"{key!r}: {empty!r} read as null")
    if isinstance(raw["workload"], dict):
        notes.extend(_canonical_workload(raw["workload"]))
    environment = raw["evaluation"].get("environment") if isinstance(raw.get("evaluation"), dict) else None
    if isinstance(environment, dict) and "hardware" not in environment and "device" in environment:
        environment["hardware"] = environment.pop("device")
        notes.append("older key 'device' read as 'hardware'")
    return raw, notes


def _canonical_workload(workload: dict[str, Any]) -> Iterator[str]:
    for key in ("axes", "inputs"):
        if workload.get(key) is None:
            workload[key] = {}
            yield f"no {key!r}: read as none"
    if isinstance(workload["axes"], dict):
        for name, size in workload["axes"].items():
            if isinstance(size, float) and size.is_integer():
                workload["axes"][name] = int(size)
                yield f"axis {name!r}: {size!r} read as {int(size)}"
    if isinstance(workload["inputs"], dict):
        for name in [name for name, spec in workload["inputs"].items() if spec is None]:
            del workload["inputs"][name]
            yield f"input {name!r}: null read as left out"
    if workload.get("uuid") in (None, ""):
        workload.pop("uuid", None)
        identity = stable_uuid(workload)
        workload["uuid"] = identity
        yield f"no 'uuid': {identity} follows from the content"


def stable_uuid(workload: dict[str, Any]) -> str:
    """Derive a uuid from what a workload says: the same on every machine, however its keys are ordered."""
    text = json.dumps({**workload, "uuid": None}, sort_keys=True, allow_nan=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
