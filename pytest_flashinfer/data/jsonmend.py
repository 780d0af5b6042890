"""What is wrong with text that is not JSON, and the likely mend.

The standard library names the first fault only. Here the likely mend is applied to a copy and the reading goes on, so
that a writer sees all faults at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pytest_flashinfer.data.positions import line_and_column

_MAX_MENDS = 20
_ONE_FAULT_FROM = 1 << 20  # characters; each mend reads the text once more
_SHOWN = 40  # characters of a key
_SPACE = " \t\r\n"
_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_BRACKET = re.compile(rf"{_STRING}|[{{}}\[\]]")
_LISTED = re.compile(rf"\s*{_STRING}\s*(?:,\s*{_STRING}\s*)*(?=\}})")
_SINGLE = re.compile(r"'([^'\"\\\n]*)'")
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null", "undefined": "null", "nil": "null"}
_IN_STRING = {
    "Unterminated string": "this string is never closed: put a '\"' at its end (a line break in it is written \\n)",
    "Invalid control character": "a line break or control character inside a string: write \\n or \\t",
    "Invalid \\": "invalid escape in a string: a backslash is written \\\\",
}


@dataclass(frozen=True, slots=True)
class _Mend:
    """A fault at `offset`; `edit` is `(start, end, replacement)`, `None` where nothing sensible can be guessed."""

    offset: int
    message: str
    edit: tuple[int, int, str] | None = None


def diagnose(text: str) -> list[tuple[int, str]]:
    """List the syntax faults of `text` as `(offset, message)`, in the order in which a reader meets them."""
    found: list[tuple[int, str]] = []
    inserted: list[int] = []  # offsets of the original text in front of which a comma was put
    for _ in range(_MAX_MENDS if len(text) < _ONE_FAULT_FROM else 1):
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            if error.pos > _ONE_FAULT_FROM:  # a mend looks at all that is before it
                return [(error.pos, error.msg[:1].lower() + error.msg[1:])]
            mend = _mend(text, error)
        except (RecursionError, ValueError):
            break
        else:
            break
        shift = sum(1 for number, place in enumerate(inserted) if place + number < mend.offset)
        found.append((mend.offset - shift, mend.message))
        if mend.edit is None:
            break
        start, end, replacement = mend.edit
        if start == end:
            inserted.append(start - shift)
            inserted.sort()
        text = text[:start] + replacement + text[end:]
    return found


@dataclass(frozen=True, slots=True)
class _Site:
    """Where the parser stopped: `at` is the first character that it could not use, `before` the last one it could."""

    text: str
    complaint: str
    stopped: int
    at: int
    before: int

    @property
    def here(self) -> str:
        return self.text[self.at : self.at + 1]

    @property
    def last(self) -> str:
        return self.text[self.before : self.before + 1] if self.before >= 0 else ""


def _mend(text: str, error: json.JSONDecodeError) -> _Mend:
    at = error.pos
    while at < len(text) and text[at] in _SPACE:
        at += 1
    before = at - 1
    while before >= 0 and text[before] in _SPACE:
        before -= 1
    site = _Site(text, error.msg, error.pos, at, before)
    for rule in (_in_string, _trailing_comma, _ends_early, _comment, _comma, _colon, _extra, _word, _quote):
        mend = rule(site)
        if mend is not None:
            return mend
    if site.here == ",":
        doubled = site.last == ","
        return _Mend(at, "a value is missing before this ','", (at, at + 1, " ") if doubled else None)
    shown = text[at : at + 20].split("\n", 1)[0]
    return _Mend(at, f"{shown!r} is not a JSON value")


def _in_string(site: _Site) -> _Mend | None:
    for complaint, message in _IN_STRING.items():
        if site.complaint.startswith(complaint):
            return _Mend(site.stopped, message)
    return None


def _trailing_comma(site: _Site) -> _Mend | None:
    after = site.text[site.at + 1 : site.at + 200].lstrip()[:1]
    if site.here == "," and after in ("}", "]"):  # Python 3.13 points at the comma
        return _Mend(site.at, f"trailing comma: remove the ',' before '{after}'", (site.at, site.at + 1, " "))
    if site.last == "," and site.here in ("}", "]") and "delimiter" not in site.complaint:
        edit = (site.before, site.before + 1, " ")
        return _Mend(site.before, f"trailing comma: remove the ',' before '{site.here}'", edit)
    return None


def _ends_early(site: _Site) -> _Mend | None:
    if site.here:
        return None
    end = max(site.before, 0)
    opened = _open_brackets(site.text)
    if not opened:
        return _Mend(end, "the file ends where a value should stand")
    place, bracket = opened[-1]
    closing = "}" if bracket == "{" else "]"
    line, column = line_and_column(site.text, place)
    if "\n" not in site.text.strip():  # a line of a JSON Lines file, say, which knows nothing of the others
        return _Mend(end, f"the line ends before the '{closing}' that closes the '{bracket}' of column {column}")
    return _Mend(end, f"the file ends before the '{closing}' that closes the '{bracket}' of line {line}")


def _open_brackets(text: str) -> list[tuple[int, str]]:
    """Brackets that are still open at the end of `text`, strings left aside."""
    opened: list[tuple[int, str]] = []
    for match in _BRACKET.finditer(text):
        if match.group() in ("{", "["):
            opened.append((match.start(), match.group()))
        elif match.group() in ("}", "]") and opened:
            opened.pop()
    return opened


def _comment(site: _Site) -> _Mend | None:
    match = _COMMENT.match(site.text, site.at)
    if match is None:
        return None
    blank = " " * (match.end() - site.at)
    return _Mend(site.at, "JSON has no comments: remove it", (site.at, match.end(), blank))


def _comma(site: _Site) -> _Mend | None:
    if not site.complaint.startswith("Expecting ',' delimiter"):
        return None
    if site.here in "}]":
        opened = _open_brackets(site.text[: site.at])
        place, bracket = opened[-1] if opened else (0, "?")
        line = line_and_column(site.text, place)[0]
        return _Mend(site.at, f"'{site.here}' cannot close the '{bracket}' of line {line}")
    if site.here == ":":
        return _Mend(site.at, "a key and its value stand inside [ ]: write them inside { }")
    if site.here in "'\"{[-" or site.here.isalnum():
        end = site.before + 1
        return _Mend(end, "missing comma: put a ',' here", (end, end, ","))
    return _Mend(site.at, f"unexpected {site.here!r}: a ',' or a closing bracket belongs here")


def _colon(site: _Site) -> _Mend | None:
    if not site.complaint.startswith("Expecting ':' delimiter"):
        return None
    if site.here not in ",}":
        end = site.before + 1
        return _Mend(end, "missing ':' between the key and its value", (end, end, ":"))
    opened = _open_brackets(site.text[: site.at])
    start = opened[-1][0] if opened else 0
    listed = _LISTED.match(site.text, start + 1)
    if listed is None:
        key = _string_start(site.text, site.before)
        shown = site.text[key : site.before + 1][:_SHOWN]
        return _Mend(key, f"the key {shown} has no value: write \"key\": value, or '[' and ']' for a list")
    edit = (start, listed.end() + 1, "[" + listed.group() + "]")
    return _Mend(start, "a list stands in braces: write '[' and ']' in place of '{' and '}'", edit)


def _string_start(text: str, end: int) -> int:
    """Return the offset of the quote that opens the string whose closing quote stands at `end`."""
    start = text.rfind('"', 0, end)
    while (start - len(text[:start].rstrip("\\"))) % 2:  # an escaped one is a part of the string
        start = text.rfind('"', 0, start)
    return max(start, 0)


def _extra(site: _Site) -> _Mend | None:
    if not site.complaint.startswith("Extra data"):
        return None
    if site.here in "}]":
        return _Mend(site.at, f"one '{site.here}' too many", (site.at, site.at + 1, " "))
    if site.here in "{[":
        message = "a second document starts here: a file holds one document (a .jsonl file one per line)"
        return _Mend(site.at, message)
    if site.here == ":" and site.text.lstrip().startswith('"'):
        start = len(site.text) - len(site.text.lstrip())
        return _Mend(start, "'{' is missing at the start, before the first key", (start, start, "{"))
    message = "there is text after the end of the document: remove it"
    return _Mend(site.at, message, (site.at, len(site.text), ""))


def _word(site: _Site) -> _Mend | None:
    match = _WORD.match(site.text, site.at)
    if match is None:
        return None
    word = match.group()
    if word in _WORDS:
        right = _WORDS[word]
        return _Mend(site.at, f"write {right} for {word}", (site.at, match.end(), right.ljust(len(word))))
    if "property name" in site.complaint:
        return _Mend(site.at, f'keys take double quotes: "{word}"')
    return None


def _quote(site: _Site) -> _Mend | None:
    if site.here == "'":
        match = _SINGLE.match(site.text, site.at)
        edit = (site.at, match.end(), f'"{match.group(1)}"') if match else None
        return _Mend(site.at, "strings take double quotes in JSON", edit)
    if site.text.startswith("...", site.at):
        return _Mend(site.at, "'...' is not JSON: write the value")
    return None
