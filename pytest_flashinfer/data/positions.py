"""Where each value of a JSON document stands: computed only once a fault needs a line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flashinfer.data.faults import JsonPath

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


@dataclass(slots=True)
class Scan:
    """Offsets of all values (of its key for a member of an object), of repeated keys and of odd numbers."""

    offsets: dict[JsonPath, int] = field(default_factory=dict)
    duplicates: list[tuple[JsonPath, int]] = field(default_factory=list)
    scalars: list[tuple[JsonPath, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Frame:
    """One open bracket: for an object the keys seen so far, for an array the number of the current element."""

    keys: set[str] | None
    step: str | int | None


def scan(text: str) -> Scan:
    """Find the offset of every value of a valid JSON document.

    The walk keeps its own stack: a document may nest deeper than Python calls may.
    """
    result = Scan()
    stack: list[_Frame] = []
    for match in _TOKEN.finditer(text):
        lexeme, offset = match.group(), match.start()
        top = stack[-1] if stack else None
        if lexeme in "}]":
            stack.pop()
        elif lexeme == ",":
            if top is not None:
                top.step = None if isinstance(top.step, str) else (top.step or 0) + 1
        elif lexeme == ":":
            continue
        elif top is not None and top.keys is not None and top.step is None:
            _key(result, stack, json.loads(lexeme, strict=False), offset)
        else:
            path = _path(stack)
            if top is None or top.keys is None:
                result.offsets[path] = offset
            if lexeme == "{":
                stack.append(_Frame(keys=set(), step=None))
            elif lexeme == "[":
                stack.append(_Frame(keys=None, step=0))
            else:
                result.scalars.append((path, offset, lexeme))
    return result


def _key(result: Scan, stack: list[_Frame], key: str, offset: int) -> None:
    top = stack[-1]
    top.step = key
    path = _path(stack)
    if top.keys is not None and key in top.keys:
        result.duplicates.append((path, offset))
    elif top.keys is not None:
        top.keys.add(key)
    result.offsets[path] = offset


def _path(stack: list[_Frame]) -> JsonPath:
    return tuple(frame.step for frame in stack if frame.step is not None)


class LineIndex:
    """Counts the line breaks of a long text once, block by block, for whoever asks for many lines of it."""

    _BLOCK = 1 << 16

    def __init__(self, text: str) -> None:
        self._text = text
        self._before = [0]  # line breaks before each block, as far as anybody asked

    def line(self, offset: int) -> int:
        """Give the line of an offset, from 1."""
        block = offset // self._BLOCK
        while len(self._before) <= block:
            end = len(self._before) * self._BLOCK
            self._before.append(self._before[-1] + self._text.count("\n", end - self._BLOCK, end))
        return self._before[block] + self._text.count("\n", block * self._BLOCK, offset) + 1


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Turn an offset into a line and a column, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
