"""Reading JSON files: a value, the line of every part of it, and faults in place of exceptions."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.extent import MAX_REPEATED, TOO_DEEP, TOO_MANY, too_large
from pytest_flashinfer.data.faults import Fault, JsonPath, show_path
from pytest_flashinfer.data.files import BOM, MAX_BYTES, decode, read_bytes, reason_of, refuse
from pytest_flashinfer.data.jsonhooks import MAX_DIGITS, Reading, TooManyError
from pytest_flashinfer.data.jsonmend import diagnose
from pytest_flashinfer.data.positions import LineIndex, Scan, line_and_column, scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HALF_CHARACTER = "half of a surrogate pair (\\ud800 to \\udfff) is not a character"
MAX_BROKEN_LINES = 20  # of a JSONL file, until the rest is left unread
MAX_LINES = 100_000


@dataclass(slots=True)
class Document:
    """A JSON document as read from a file; `value` is `None` where `faults` say why it could not be read.

    `line` is the line of the file on which the document starts: not 1 in a JSONL file.
    """

    path: Path
    value: Any = None
    text: str = ""
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    line: int = 1
    _scan: Scan | None = field(default=None, repr=False)
    _index: LineIndex | None = field(default=None, repr=False)

    @property
    def readable(self) -> bool:
        """Whether there is a value: also `null` is one."""
        return bool(self.text) and not (self.value is None and self.faults)

    def scan(self) -> Scan:
        """Offsets of all parts, computed on the first call."""
        if self._scan is None:
            self._scan = scan(self.text) if self.readable else Scan()
        return self._scan

    def position(self, where: JsonPath) -> tuple[int, int]:
        """Line and column (from 1) of a part, or of its nearest ancestor that the file has."""
        offset = self._offset(where)
        return self.line_of(where), line_and_column(self.text, offset)[1]

    def has(self, where: JsonPath) -> bool:
        """Whether the document has such a part."""
        return where in self.scan().offsets

    def _offset(self, where: JsonPath) -> int:
        offsets = self.scan().offsets
        while where and where not in offsets:
            where = where[:-1]
        return offsets.get(where, 0)

    def line_of(self, where: JsonPath) -> int:
        """Line of a part, from 1, in the file."""
        if self._index is None:
            self._index = LineIndex(self.text)
        return self._index.line(self._offset(where)) + self.line - 1


def parse_json(text: str, path: Path, *, line: int = 1, nan_ok: bool = False) -> Document:
    """Parse one document; never raises. `nan_ok` lets NaN and Infinity pass, as old trace files have them."""
    if not text.strip():
        return _broken(path, "empty file: write a JSON object, or delete the file", line)
    reading = Reading()
    try:
        value = json.loads(
            text,
            object_pairs_hook=reading.pairs,
            parse_constant=reading.constant,
            parse_float=reading.number,
            parse_int=reading.integer,
        )
    except json.JSONDecodeError:
        return Document(path, text=text, faults=tuple(_syntax_faults(text, path, line)), line=line)
    except RecursionError:
        return _broken(path, TOO_DEEP, line)
    except TooManyError:
        return _broken(path, TOO_MANY, line)
    reason = too_large(value)
    if reason:
        return _broken(path, reason, line)
    document = Document(path, value, text, line=line)
    document.faults = tuple(_told(document, _oddities(document, reading, nan_ok=nan_ok)))
    if any(fault.message == HALF_CHARACTER for fault in document.faults):
        document.value = None  # such text can be neither hashed nor written back
    return document


def _syntax_faults(text: str, path: Path, first: int) -> Iterator[Fault]:
    for offset, message in diagnose(text):
        line, column = line_and_column(text, offset)
        yield Fault(path, line + first - 1, "", f"not JSON: {message}", column)


def _told(document: Document, found: Iterator[tuple[JsonPath, int, str]]) -> Iterator[Fault]:
    """Tell the first few, and of half a character always: it makes the document unusable."""
    told = Counter[bool]()
    for where, offset, message in found:
        half = message == HALF_CHARACTER
        told[half] += 1
        if told[half] <= MAX_REPEATED:
            line, column = line_and_column(document.text, offset)
            yield Fault(document.path, line + document.line - 1, show_path(where), message, column)


def _oddities(document: Document, reading: Reading, *, nan_ok: bool) -> Iterator[tuple[JsonPath, int, str]]:
    if reading.repeated:
        for where, offset in document.scan().duplicates:
            yield where, offset, f"key {where[-1]!r} stands here a second time: keep one of the two"
    if "\\u" in document.text:
        for where, offset in document.scan().offsets.items():
            if where and isinstance(where[-1], str) and not _is_text(where[-1]):
                yield where[:-1], offset, HALF_CHARACTER
    if reading.odd or "\\u" in document.text:
        for where, offset, lexeme in document.scan().scalars:
            message = _odd_string(lexeme) if lexeme[0] == '"' else _odd_number(lexeme, nan_ok=nan_ok)
            if message:
                yield where, offset, message


def _odd_number(lexeme: str, *, nan_ok: bool) -> str | None:
    if lexeme in ("NaN", "Infinity", "-Infinity"):
        return None if nan_ok else f"{lexeme} is not JSON: write a number, or null"
    digits = lexeme.lstrip("-").isdigit()
    if len(lexeme) > MAX_DIGITS if digits else lexeme[-1].isdigit() and not math.isfinite(float(lexeme)):
        return f"{lexeme[:12]}... is too large for a number"
    return None


def _odd_string(lexeme: str) -> str | None:
    return None if _is_text(json.loads(lexeme, strict=False)) else HALF_CHARACTER


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _broken(path: Path, message: str, line: int | None = None) -> Document:
    return Document(path, faults=(Fault(path, line, "", message),), line=line or 1)


def read_json(path: Path, *, nan_ok: bool = False) -> Document:
    """Read a file that holds one JSON document; never raises, never waits for a pipe."""
    data = read_bytes(path, MAX_BYTES)
    if isinstance(data, str):
        return _broken(path, data)
    text, remark = decode(data)
    if remark and not text and data != BOM:
        return _broken(path, remark)
    document = parse_json(text, path, nan_ok=nan_ok)
    if remark:
        document.notes = (remark,)
    return document


def read_json_lines(path: Path) -> Iterator[Document]:
    """Read a file that holds one JSON document a line; blank lines are skipped; never raises.

    NaN and Infinity pass, as old trace files have them. Only one line is held at a time; reading stops after
    `MAX_BROKEN_LINES` lines that are not JSON.
    """
    try:
        reason = refuse(path)
        if reason:
            yield _broken(path, reason)
            return
        with path.open("rb") as file:
            yield from _lines(path, iter(lambda: file.readline(MAX_BYTES + 1), b""))
    except (OSError, ValueError) as error:
        yield _broken(path, f"cannot be read: {reason_of(error)}")


def _lines(path: Path, lines: Iterator[bytes]) -> Iterator[Document]:
    broken = 0
    for number, data in enumerate(lines, 1):
        if len(data) > MAX_BYTES:
            yield _broken(path, f"a line of more than {MAX_BYTES >> 20} MiB; the rest of the file is not read", number)
            return
        if not data.strip():
            continue
        text, remark = decode(data)
        if not text.strip():
            if remark and data.strip() != BOM:
                yield _broken(path, remark, number)
                broken += 1
        else:
            document = parse_json(text.rstrip("\r\n"), path, line=number, nan_ok=True)
            document.notes = (remark,) if remark else ()
            broken += not document.readable
            yield document
        if number == MAX_LINES:
            yield _broken(path, f"more than {MAX_LINES} lines: split the file; the rest is not read", number + 1)
            return
        if number == broken == MAX_BROKEN_LINES:
            hint = "no line so far is a JSON document: write one whole object per line; the rest is not read"
            yield _broken(path, hint, number + 1)
            return
