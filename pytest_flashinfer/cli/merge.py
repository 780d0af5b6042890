"""`merge IN... -o OUT`: what the parts of a run left, as one run would have left it."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from pytest_flashinfer.data.faults import printable
from pytest_flashinfer.report.markdown import BEGINNING
from pytest_flashinfer.report.numbers import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pytest_flashinfer.report.baseline import Baseline
    from pytest_flashinfer.report.results import Broken, Result

SUMMARY = "summary.md"
_FOREIGN = (ValueError, KeyError, TypeError, AttributeError, ET.ParseError)  # what reading another's file may end in


class CannotMergeError(Exception):
    """The parts do not go together; the message is one line."""


def run(sources: Sequence[Path], target: Path, baseline: Path | None = None, limit: int | None = None) -> int:
    """Join files of the same relative path and write them below `target`, with a summary of all that was tested.

    Lines of `.jsonl` follow each other, each once; the benchmarks of pytest-benchmark's `.json` and the tests of junit
    `.xml` are put together. `baseline` is a `.json` of pytest-benchmark to compare with; one that is not there is
    said and passed over, since the first run has none. What an earlier merge wrote is replaced, and no file of another
    kind. Raises CannotMergeError and OSError.
    """
    from pytest_flashinfer.report import compared, markdown
    from pytest_flashinfer.report.baseline import timings
    from pytest_flashinfer.report.results import Broken, Result

    files = _files(sources, target)
    written = {path: _JOIN[parts[0].suffix](parts) for path, parts in files.items()}
    _demand_replaceable(target / path for path in (*written, SUMMARY))
    read = [each for parts in files.values() for path in parts if path.suffix == ".xml" for each in _outcomes(path)]
    results = [each for each in read if isinstance(each, Result)]
    broken = list(dict.fromkeys(each for each in read if isinstance(each, Broken)))  # parts may have it in common
    for path, text in written.items():
        _write(target / path, text)
    try:
        now = (timings(target / path, text) for path, text in written.items() if path.endswith(".json"))
        more = compared.block(earlier, now) if (earlier := _read(baseline)) is not None else ""
        room = markdown.LIMIT if limit is None else limit
        text = markdown.summary(results, room, [more] if more else [], broken)
    except _FOREIGN as error:
        raise CannotMergeError(f"no summary: not what this package writes: {printable(repr(error))}") from error
    if text:
        _write(target / SUMMARY, text)
    told = f"{count(len(written), 'file')} of {count(len(sources), 'part')}"
    sys.stdout.write(f"{told}, {count(len(results), 'result')} of solutions: {target}\n")
    return 0


def _read(baseline: Path | None) -> Baseline | None:
    from pytest_flashinfer.report.baseline import BaselineError, read

    if baseline is None:
        return None
    if not baseline.is_file():
        sys.stderr.write(f"warning: no baseline: {baseline} does not exist\n")
        return None
    try:
        return read(baseline)
    except BaselineError as error:
        raise CannotMergeError(f"--baseline: {printable(str(error))}") from error


def _files(sources: Iterable[Path], target: Path) -> dict[str, list[Path]]:
    """Sort what the parts left by relative path; files of other kinds are left where they are."""
    found: dict[str, list[Path]] = defaultdict(list)
    sources = list(sources)
    if len({source.resolve() for source in sources}) < len(sources):
        raise CannotMergeError(f"{', '.join(map(str, sources))}: the same folder twice; each is a part of its own")
    output = target.resolve()
    for source in sources:
        if not source.is_dir():
            raise CannotMergeError(f"{source}: no folder; name the folders that the parts left")
        if source.resolve().is_relative_to(output):
            raise CannotMergeError(f"-o {target}: {source}, which is a part, lies in there: name another folder")
        for path in sorted(source.rglob("*")):
            inside = (source.resolve() / path.relative_to(source)).is_relative_to(output)
            if not inside and path.is_file() and path.suffix in _JOIN:
                found[path.relative_to(source).as_posix()].append(path)
    if not found:
        raise CannotMergeError(f"{', '.join(map(str, sources))}: no .jsonl, .json or .xml file in there")
    return dict(sorted(found.items()))


def _demand_replaceable(places: Iterable[Path]) -> None:
    """Raise CannotMergeError where a file is in the way that neither a run nor an earlier merge has written."""
    try:
        for path in places:
            if path.exists():
                _read_part(path)
    except CannotMergeError as error:
        raise CannotMergeError(f"{error}: it would be overwritten; name another folder") from error


def _read_part(path: Path) -> Any:
    """Return what a file holds, as `_READ` says of its kind. Raises CannotMergeError where it is something else."""
    read, written_by = _READ[path.suffix]
    try:
        return read(path)
    except _FOREIGN as error:
        known = isinstance(error, (ET.ParseError, ValueError))
        why = printable(str(error)) if known else f"not what {written_by} writes"
        raise CannotMergeError(f"{path}: {why}") from error


def _lines_of(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").split("\n") if line.strip()]


def _timings_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for each in document["benchmarks"]:
        each["fullname"], each.get("extra_info", {}).get("device")
    return document


def _suites_of(path: Path) -> list[ET.Element]:
    document = ET.parse(path).getroot()  # noqa: S314 - of a run of our own
    if document.tag not in ("testsuite", "testsuites"):
        raise TypeError(document.tag)
    return [document] if document.tag == "testsuite" else list(document.iter("testsuite"))


def _summary_of(path: Path) -> str:
    text = path.read_text("utf-8")
    if not text.startswith(BEGINNING):
        raise TypeError(path)
    return text


def _outcomes(path: Path) -> list[Result | Broken]:
    """Return what the tests of a junit report came to."""
    from pytest_flashinfer.report import junit

    try:
        return list(junit.read(path.read_bytes()))
    except _FOREIGN as error:
        raise CannotMergeError(f"{path}: not what this package writes: {printable(repr(error))}") from error


def _lines(parts: Sequence[Path]) -> str:
    return "".join(f"{line}\n" for line in dict.fromkeys(line for path in parts for line in _read_part(path)))


def _benchmarks(parts: Sequence[Path]) -> str:
    """Join JSON of pytest-benchmark; the same benchmark twice, or another card, cannot be one run."""
    documents: list[dict[str, Any]] = list(map(_read_part, parts))
    names: dict[str, Path] = {}
    cards: dict[str, Path] = {}
    for path, document in zip(parts, documents, strict=True):
        for each in document["benchmarks"]:
            name, card = each["fullname"], str(each.get("extra_info", {}).get("device"))
            cards.setdefault(card, path)
            if names.setdefault(name, path) != path:
                raise CannotMergeError(f"{name} is in {names[name]} and in {path}: were they parts of one run?")
    if len(cards) > 1:
        told = " and ".join(f"{card} ({path})" for card, path in sorted(cards.items()))
        raise CannotMergeError(f"timed on different devices, which nobody can compare: {told}")
    benchmarks = [each for document in documents for each in document["benchmarks"]]
    merged = {**documents[0], "benchmarks": sorted(benchmarks, key=lambda each: str(each["fullname"]))}
    return json.dumps(merged, indent=4) + "\n"


def _junit(parts: Sequence[Path]) -> str:
    root = ET.Element("testsuites")
    for path in parts:
        root.extend(_read_part(path))
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_JOIN = {".jsonl": _lines, ".json": _benchmarks, ".xml": _junit}
_READ: Final[dict[str, tuple[Callable[[Path], Any], str]]] = {
    ".jsonl": (_lines_of, "--fib-traces"),
    ".json": (_timings_of, "--benchmark-json"),
    ".xml": (_suites_of, "--junitxml"),
    ".md": (_summary_of, "merge"),
}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8", errors="replace")
    unfinished.replace(path)
