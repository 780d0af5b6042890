"""`-k` before workloads are read: a definition file of which nothing can match is not read any further.

Nearly all the time of a collection goes into workloads and the items made of them, and `-k one_kernel` is what people
type most. Whatever is not certain counts as a match: pytest itself decides then, item by item.

pytest has no public names for its expressions. Those used here are there in pytest 8.2 and 9.2, with which CI runs; a
pytest that has no such names decides about every file itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from _pytest.mark import KeywordMatcher
    from _pytest.mark import expression as expressions
    from _pytest.mark.expression import Expression
except ImportError:
    KeywordMatcher = expressions = Expression = None  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SHOWN_UUID = 8  # characters of a workload's uuid in an item's id
_UNREADABLE = (SyntaxError, getattr(expressions, "ParseError", SyntaxError))  # an error of its own before pytest 9
_MOST_UNKNOWN = 6  # words of an expression that are tried both ways
_WORD = re.compile(r"[\w.]+")  # such a one lies within one part of an item's name, which `[`, `-` and `]` set apart
_HEX = re.compile(r"[0-9a-f]*")  # what a uuid that follows from a workload's content is made of
_ADD_NAMES = ("pytest_itemcollected", "pytest_collection_modifyitems", "pytest_generate_tests")


@dataclass(frozen=True)
class Names:
    """What the items of a definition file are called by, besides the file's own names.

    `parts` are names of checks, marks and solutions. The part of an id that stands for the workload is made of `axes`
    with their sizes, and of the start of a uuid that `workloads`, called if need be, returns among other text.
    """

    parts: frozenset[str]
    axes: tuple[str, ...]
    workloads: Callable[[], str]

    def may_match(self, word: str) -> bool:
        """Whether a word of an expression can be in the name of an item; certain only where the answer is no."""
        word = word.lower()
        if _WORD.fullmatch(word) is None:
            return True
        stem = word.rstrip("0123456789")
        heads = {word[:end] for end in range(len(stem), len(word) + 1)} | {stem.removesuffix("_")}
        for part in map(str.lower, (*self.parts, *self.axes)):
            # Digits may follow: a size, or pytest's own number where two ids would be the same.
            if word in part or any(part.endswith(head) for head in heads):
                return True
        return self._may_be_uuid(stem.removesuffix("_"))

    def _may_be_uuid(self, word: str) -> bool:
        """Look for a word in the texts: an id has `_` where a uuid has other characters, and all others as they are."""
        if len(word) > SHOWN_UUID:
            return False
        text = self.workloads().lower()
        return "\\" in text or all(piece in text or _HEX.fullmatch(piece) for piece in word.split("_"))


class _Undecided(Exception):  # noqa: N818 - no error
    pass


@dataclass
class Keyword:
    """The expression of `-k`, as far as it can be decided for a file as a whole."""

    config: pytest.Config
    expression: Expression | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        text = str(getattr(self.config.option, "keyword", "") or "").lstrip()
        if Expression is None or not text or any("::" in str(argument) for argument in self.config.args):
            return  # an item that was named must be found, if only to be deselected
        try:
            self.expression = Expression.compile(text)
        except _UNREADABLE:
            return  # pytest says so in a moment

    def excludes(self, file: pytest.Collector, names: Names) -> bool:
        """Whether certainly no item of `file` will match."""
        if self.expression is None or _may_rename(self.config):
            return False
        of_file = KeywordMatcher.from_item(file)  # type: ignore[arg-type]  # a file has all that it asks for
        return not self._may_hold(of_file, names, {})

    def _may_hold(self, of_file: KeywordMatcher, names: Names, truth: dict[str, bool]) -> bool:
        """Whether the expression holds for some of the ways in which words beyond `truth` match or do not."""

        def matches(word: str, /, **_: Any) -> bool:
            if word in truth:
                return truth[word]
            if of_file(word):
                return True
            if names.may_match(word):
                raise _Undecided(word)
            return False

        assert self.expression is not None
        try:
            return self.expression.evaluate(matches)
        except _Undecided as undecided:
            (word,) = undecided.args
        return len(truth) == _MOST_UNKNOWN or any(
            self._may_hold(of_file, names, {**truth, word: value}) for value in (True, False)
        )


def _may_rename(config: pytest.Config) -> bool:
    """Whether a conftest.py may give items other names: by a hook, or by a fixture with parameters."""
    for plugin in config.pluginmanager.get_plugins():
        if Path(str(getattr(plugin, "__file__", ""))).name != "conftest.py":
            continue
        if any(hasattr(plugin, name) for name in _ADD_NAMES):
            return True
        for value in list(vars(plugin).values()):
            marker = getattr(value, "_fixture_function_marker", None) or getattr(value, "_pytestfixturefunction", None)
            if getattr(marker, "params", None):
                return True
    return False
