"""Reading a solution: a JSON file, a folder with `config.toml`, or a Python module."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import model, schema, sniff
from pytest_flashinfer.data.discover import misnamed
from pytest_flashinfer.data.faults import Fault, Lines, Loaded, without_repeats
from pytest_flashinfer.data.jsontext import read_json
from pytest_flashinfer.data.languages import canonical, canonical_binding, one_colon
from pytest_flashinfer.data.places import Places
from pytest_flashinfer.data.reader import Malformed, Reader
from pytest_flashinfer.data.solution_forms import CONFIG, Found, read_folder, told_in_json
from pytest_flashinfer.data.solution_module import read_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANY_HARDWARE = ("any",)  # written where none is named, since other tools want at least one


def load_solution(path: Path) -> Loaded[model.Solution]:
    """Read a solution; never raises on bad content, which is told as faults.

    `path` is a `.json` file, a folder with a `config.toml` (or that file), or a `.py` module. A folder's or module's
    sources are read now: what is judged later is what was read. A JSON file that is something else than a solution
    has no value and no faults, but a warning: it may lie there for another purpose.
    """
    if path.is_dir() or path.name == CONFIG:
        found = read_folder(path if path.is_dir() else path.parent)
    elif path.suffix == ".py":
        found = read_module(path)
    elif path.suffix.lower() == ".py":
        return Loaded(None, path, (Fault(path, None, "", misnamed(path)),))
    else:
        return _load_json(path)
    if found.raw is None:
        return Loaded(None, found.path, found.faults, found.notes, claim=found.definition)
    return _finish(found, found.lines)


def _load_json(path: Path) -> Loaded[model.Solution]:
    document = read_json(path)
    if not document.readable:
        return Loaded(None, path, document.faults, document.notes, claim=told_in_json(document.text))
    wrong = sniff.wrong_kind(document.value, sniff.SOLUTION)
    if wrong:
        warning = Fault(path, 1, "", wrong, kind="warning")
        return Loaded(None, path, document.faults, document.notes, (warning,))
    return _finish(Found(path, copy.deepcopy(document.value), document.faults, document.notes), Places(document))


def _finish(found: Found, places: Lines) -> Loaded[model.Solution]:
    raw: dict[str, Any] = found.raw or {}
    notes = [*found.notes, *_settle(raw)]
    result: Loaded[model.Solution] = Loaded(None, found.path, lines=places, raw=raw)
    faults = [*found.faults, *_one_colon(result)]
    value = None
    try:
        value = replace(build(raw), module=found.path.suffix == ".py")
    except Malformed as error:
        faults.extend(schema.malformed("solution", result, error))
    return Loaded(value, found.path, without_repeats(faults), tuple(notes), found.warnings, lines=places, raw=raw)


def _settle(raw: dict[str, Any]) -> list[str]:
    """Bring older spellings into the canonical ones."""
    notes: list[str] = []
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return notes
    if "language" not in spec:
        notes += _one_language(spec)
    for key, named in (("language", canonical), ("binding", canonical_binding)):
        if isinstance(spec.get(key), str):
            plain = named(spec[key])
            if plain != spec[key]:
                notes.append(f"{key} {spec[key]!r} read as {plain!r}")
                spec[key] = plain
    if isinstance(spec.get("target_hardware"), str):
        spec["target_hardware"] = [spec["target_hardware"]]
        notes.append("target_hardware: one name read as a list of one")
    entry, paths = spec.get("entry_point"), _source_paths(raw)
    if isinstance(entry, str) and entry and ":" not in entry:
        file = paths[0] if len(paths) == 1 else "main.py"
        spec["entry_point"] = f"{file}::{entry}"
        notes.append(f"entry_point {entry!r} names no file: read as {spec['entry_point']!r}")
    return notes


def _one_colon(loaded: Loaded[model.Solution]) -> Iterator[Fault]:
    """Say how an entry point is written that has one colon in the middle, as Python's own have."""
    spec = loaded.raw.get("spec")
    entry = spec.get("entry_point") if isinstance(spec, dict) else None
    hint = one_colon(entry) if isinstance(entry, str) else None
    if hint is not None:
        yield loaded.fault(("spec", "entry_point"), hint)


def _one_language(spec: dict[str, Any]) -> list[str]:
    """Take the one of SOL-ExecBench's `languages` that says how to build: plain Python is only what the others need.

    Libraries that it lists as languages stay listed there: the key is kept and written back.
    """
    listed = spec.get("languages")
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
        return []
    plain = list(map(canonical, listed))
    spec["language"] = next((name for name in plain if name != "python"), "python")
    return [f"languages {', '.join(listed)}: built as {spec['language']!r}"]


def _source_paths(raw: dict[str, Any]) -> list[str]:
    sources = raw.get("sources")
    listed = sources if isinstance(sources, list) else ()
    return [source["path"] for source in listed if isinstance(source, dict) and isinstance(source.get("path"), str)]


def build(raw: dict[str, Any]) -> model.Solution:
    """Build a solution from its canonical document. Raises Malformed."""
    read = Reader(raw)
    spec = Reader(read.need("spec", dict), ("spec",))
    entry = spec.need("entry_point", str)
    file, _, function = entry.rpartition("::") if "::" in entry else (entry, "", "")
    by_destination = spec.take("destination_passing_style", bool)
    hardware = spec.texts("target_hardware")
    solution = model.Solution(
        name=read.need("name", str),
        definition=read.need("definition", str),
        author=read.need("author", str),
        language=spec.need("language", str),
        entry_file=file,
        entry_function=function,
        sources=_sources(read),
        destination_passing=by_destination is not False,
        target_hardware=() if hardware == ANY_HARDWARE else hardware,
        dependencies=spec.texts("dependencies"),
        binding=spec.take("binding", str),
        description=read.take("description", str),
        extra=read.rest,
    )
    if spec.rest:
        read.rest["spec"] = spec.rest  # such as build_steps and compile_options
    return solution


def _sources(read: Reader) -> tuple[model.SourceFile, ...]:
    sources = []
    for number, source in enumerate(read.need("sources", list)):
        inner = Reader(source, ("sources", number))
        path, content = inner.need("path", str), inner.rest.pop("content", None)
        if not isinstance(content, str):
            raise inner.fail("content", "missing key 'content'" if content is None else "expected text")
        sources.append(model.SourceFile(path, content, inner.rest))
    return tuple(sources)
