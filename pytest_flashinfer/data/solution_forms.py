"""Solutions as people keep them while they write a kernel, brought into the document that a JSON solution is."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_flashinfer.data.faults import Fault, JsonPath, Lines, OneLine
from pytest_flashinfer.data.files import read_text
from pytest_flashinfer.data.nearest import ALIKE, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG = "config.toml"
KNOWN = ("name", "definition", "author", "description")
SUFFIXES = frozenset([".py", ".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hh", ".inl", ".inc", ".ptx"])
MAX_FILES = 200
MAX_SOURCE = 8 << 20
MAX_CONFIG = 256 << 10
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)")
_BARE = re.compile(r"\s*([\w-]+)\s*=\s*([A-Za-z_][\w .:+-]*?)\s*(?:#.*)?$")  # a key that is set to words
DEFINITION = re.compile(r"^definition\s*(?::[^=\n]*)?=(?:[ \t]*([\"'])([\w.-]+)\1)?", re.MULTILINE)
_MEMBER = re.compile(r"([\"'])definition\1\s*:\s*([\"'])([\w.-]+)\2")


class KeyLines(OneLine):
    """Where the keys of a `config.toml` stand: each is the first thing on a line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __call__(self, where: JsonPath) -> int:
        """Give the line of a key of its tables; the first line for all that is not in the file, as sources are not."""
        keys = () if "sources" in where else (key for key in reversed(where) if isinstance(key, str))
        found = map(self._search, keys)
        return next((self.text.count("\n", 0, match.start()) + 1 for match in found if match), self.line)

    def has(self, where: JsonPath) -> bool:
        """Whether a key is in the file; its tables and its sources always are, under other names."""
        return where[-1] in ("spec", "sources") or self._search(str(where[-1])) is not None

    def show(self, where: JsonPath) -> str:
        """Write the path with the tables of the file."""
        head, *rest = where or ("",)
        table = {"spec": ("build",), **{key: ("solution", key) for key in KNOWN}}.get(str(head))
        return super().show(where if table is None else (*table, *rest))

    def _search(self, key: str) -> re.Match[str] | None:
        return re.search(rf"^[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*=", self.text, re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """The document that a solution comes to, `None` where `faults` say why there is none."""

    path: Path
    raw: dict[str, Any] | None = None
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[Fault, ...] = ()
    definition: str | None = None  # whom it is for, as far as one can tell of a file that is broken
    lines: Lines = field(default_factory=OneLine, compare=False)


def broken(path: Path, message: str, line: int | None = None, column: int | None = None) -> Found:
    """Say why there is no document."""
    return Found(path, faults=(Fault(path, line, "", message, column),))


def read_folder(folder: Path) -> Found:
    """Read a folder that holds a `config.toml` and sources, beside it or under `solution/<language>/`."""
    path = folder / CONFIG
    text, reason = read_text(path, MAX_CONFIG)
    if text is None:
        return broken(path, reason or "cannot be read")
    try:
        config = _plain(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return replace(_toml_fault(path, text, str(error)), definition=told_in_text(text))
    tables = {name: config.get(name, {}) for name in ("solution", "build")}
    for name, table in tables.items():
        if not isinstance(table, dict) or not table:
            return _no_table(path, text, name, config)
    language = str(tables["build"].get("language", "")).lower()
    root = next(place for place in _source_folders(folder, language) if place.is_dir())
    sources, faults, remarks = _read_sources(folder, root)
    if not (sources or faults):
        faults = [_no_sources(path, tables["build"], language)]
    raw: dict[str, Any] = {key: tables["solution"][key] for key in KNOWN if key in tables["solution"]}
    notes = [*defaults(raw, folder.name), *remarks]
    rest = {key: value for key, value in tables["solution"].items() if key not in KNOWN}
    others = {key: value for key, value in config.items() if key not in tables}
    raw |= {"spec": dict(tables["build"]), "sources": sources, **rest, **others}
    return Found(path, raw, tuple(faults), tuple(notes), lines=KeyLines(text))


def _no_table(path: Path, text: str, name: str, config: dict[str, Any]) -> Found:
    """Say that a table is not there or empty, and which one may be meant."""
    meant = nearest(name, [key for key, value in config.items() if isinstance(value, dict) and key != name], ALIKE)
    there = re.search(rf"^[ \t]*\[[ \t]*[\"']?{re.escape(meant or name)}\b", text, re.MULTILINE)
    line = None if there is None else text.count("\n", 0, there.start()) + 1
    if meant:
        return broken(path, f"missing table [{name}]; there is [{meant}]: rename it", line)
    return broken(path, f"missing table [{name}]: see the solution kit's config.toml", line)


def _no_sources(path: Path, build: dict[str, Any], language: str) -> Fault:
    """Say where sources belong, at the place at which a schema would say how JSON has them."""
    entry = str(build.get("entry_point", "")).partition(":")[0] or "them"
    message = f"there are no source files: put {entry} beside {CONFIG}, or into solution/{language or '<language>'}/"
    return Fault(path, 1, "sources", message)


def defaults(raw: dict[str, Any], name: str) -> list[str]:
    """Supply the name and the author where none are given; return notes."""
    notes = []
    for key, value in (("name", name), ("author", "unknown")):
        if key not in raw:
            raw[key] = value
            notes.append(f"no {key!r}: {value!r} is taken")
    return notes


def _plain(value: Any) -> Any:
    """Write dates as text: JSON has none, and what is read here has to be written back."""
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return value if isinstance(value, (str, int, float)) else str(value)


def _toml_fault(path: Path, text: str, message: str) -> Found:
    place = _PLACE.search(message)
    line, column = (int(place[1]), int(place[2])) if place and place[1] else (None, None)
    bare = _BARE.match(text.split("\n")[line - 1]) if line is not None and "Invalid value" in message else None
    quotes = f': put text in quotes: {bare[1]} = "{bare[2]}"' if bare else ""
    return broken(path, f"not TOML: {_PLACE.sub('', message)}{quotes}", line, column)


def _source_folders(folder: Path, language: str) -> tuple[Path, ...]:
    inner = folder / "solution"
    return (inner / language, inner, folder) if language.isidentifier() else (inner, folder)


def _read_sources(folder: Path, root: Path) -> tuple[list[dict[str, str]], list[Fault], list[str]]:
    """Read all text below a folder for sources alone, only what has a source's suffix beside a `config.toml`."""
    sources: list[dict[str, str]] = []
    faults: list[Fault] = []
    notes: list[str] = []
    for path in _source_paths(root, any_suffix=root != folder):
        text, reason = read_text(path, MAX_SOURCE)
        name = path.relative_to(root).as_posix()
        if text is not None:
            sources.append({"path": name, "content": text})
        elif path.suffix in SUFFIXES:
            faults.append(Fault(path, None, "", reason or "cannot be read"))
        else:
            notes.append(f"{name} is left out: {reason}")
    if len(sources) > MAX_FILES:
        faults.append(Fault(root, None, "", f"more than {MAX_FILES} source files: is this the solution's own folder?"))
        del sources[MAX_FILES:]
    return sources, faults, notes


def _source_paths(root: Path, *, any_suffix: bool) -> list[Path]:
    """Files below `root`, links out of it and hidden folders left aside, at most one more than allowed."""
    inside = root.resolve()
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(names):
            path = Path(folder, name)
            wanted = path.suffix in SUFFIXES or (any_suffix and not name.startswith("."))
            if wanted and path.is_file() and path.resolve().is_relative_to(inside):
                found.append(path)
        if len(found) > MAX_FILES:
            break
    return sorted(found)[: MAX_FILES + 1]


def told_in_text(text: str) -> str | None:
    """Give the definition that Python or TOML names, also where it has no other sense."""
    told = DEFINITION.search(text)
    return told[2] if told else None


def told_in_json(text: str) -> str | None:
    """Give the definition that the text of a JSON solution names, also where it is no JSON."""
    told = _MEMBER.search(text)
    return told[3] if told else None


def name_of(path: Path) -> str:
    """Name a solution that says nothing of itself by its file, or by the folder of its `config.toml`."""
    return path.parent.name if path.name == CONFIG else path.stem
