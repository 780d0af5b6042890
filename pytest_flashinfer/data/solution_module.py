"""A solution as one Python module, which says of itself what it is for. Nothing of it is run."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_flashinfer.data.faults import Fault, JsonPath, OneLine
from pytest_flashinfer.data.files import read_text
from pytest_flashinfer.data.misspelt import slip_of
from pytest_flashinfer.data.nearest import ALIKE, nearest
from pytest_flashinfer.data.solution_forms import (
    DEFINITION,
    KNOWN,
    MAX_SOURCE,
    Found,
    broken,
    defaults,
    told_in_text,
)
from pytest_flashinfer.data.source import BrokenSource, bound_names, functions, imported, parse_python, writes_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SPEC = ("language", "target_hardware", "dependencies")  # of a module, in its spec under these names
# What a module says besides, by type. Its name is not among them: a module may well have `names`, or a `_name`.
_TELLING: dict[str, type | tuple[type, ...]] = {
    "author": str, "description": str, "language": str, "target_hardware": (str, list), "dependencies": (str, list),
    "destination_passing_style": bool,
}  # fmt: skip
_TEXT = re.compile(r"^(\w+)\s*(?::[^=\n]*)?=[ \t]*([\"'])([\w.-]+)\2", re.MULTILINE)
_MOST_NAMES = 1000  # of a module that are looked at
_MOST_SHOWN = 60  # characters of an expression
RUN = re.compile(r"^(?:async )?def run\(", re.MULTILINE)


class Slip(NamedTuple):
    """A name that is nearly `definition`, the text that it is set to, and its line."""

    name: str
    value: str
    line: int


class NameLines(OneLine):
    """Where a module sets the names that say something of it."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__()
        self.names = {name: line for name, _, line in _assigned(tree)}

    def __call__(self, where: JsonPath) -> int:
        """Give the line of a name; the first line for all that the module does not set, as sources are not."""
        keys = () if "sources" in where else (key for key in reversed(where) if isinstance(key, str))
        return next((self.names[key] for key in keys if key in self.names), self.line)

    def has(self, where: JsonPath) -> bool:
        """Whether a name is set; the tables and sources of a document always are, in other ways."""
        return where[-1] in ("spec", "sources", *self.names)


def is_solution_module(text: str) -> bool:
    """Whether Python source is one of a solution: it names a definition at its top level.

    Source that does not parse is one as well, if it looks so: whoever wrote it wants to know.
    """
    if DEFINITION.search(text) is None:  # of most files this says enough, without parsing them
        return False
    tree = parse_python(text)
    return isinstance(tree, BrokenSource) or any(name == "definition" for name, *_ in _assigned(tree))


def misspelt_definition(text: str) -> Slip | None:
    """Find where Python source with a function `run` names a definition, but for a slip of the pen."""
    if RUN.search(text) is None or is_solution_module(text):
        return None
    found = (match for match in islice(_TEXT.finditer(text), _MOST_NAMES) if _is_near(match[1]))
    slip = next((Slip(match[1], match[3], text.count("\n", 0, match.start()) + 1) for match in found), None)
    tree = parse_python(text)
    if slip is None or isinstance(tree, BrokenSource):
        return slip
    lines = NameLines(tree).names  # a line of a docstring sets nothing
    said = (Slip(name, value, lines[name]) for name, value in constants(tree).items() if isinstance(value, str))
    return next((each for each in said if _is_near(each.name)), None)


def _is_near(name: str) -> bool:
    return nearest(name, ("definition",), ALIKE) is not None


def read_module(path: Path) -> Found:
    """Read a Python module with `definition = "<name>"` and a function `run`; nothing of it is run."""
    text, reason = read_text(path, MAX_SOURCE)
    if text is None:
        return broken(path, reason or "cannot be read")
    tree = parse_python(text)
    if isinstance(tree, BrokenSource):
        return replace(broken(path, f"not Python: {tree.message}", tree.line), definition=told_in_text(text))
    said = constants(tree)
    if not isinstance(said.get("definition"), str):
        return _nameless(path, text, tree)
    run = functions(tree).get("run")
    style = said.get("destination_passing_style")
    notes = []
    if style is None:
        style = run is not None and writes_in_place(run)
        notes.append(f"run {'writes its outputs in place' if style else 'returns its outputs'}, as its source has it")
    raw: dict[str, Any] = {key: said[key] for key in KNOWN if key in said}
    notes += defaults(raw, path.stem)
    spec = {"language": _language(tree), "entry_point": f"{path.name}::run", "destination_passing_style": style}
    spec |= {key: said[key] for key in _SPEC if key in said}
    raw |= {"spec": spec, "sources": [{"path": path.name, "content": text}]}
    lines = NameLines(tree)
    return Found(path, raw, notes=tuple(notes), warnings=tuple(_misspelt(path, lines, said)), lines=lines)


def _nameless(path: Path, text: str, tree: ast.Module) -> Found:
    """Say that a module tells no definition, and whom it is for where it nearly does."""
    set_to = {line: node for name, node, line in _assigned(tree) if name == "definition"}
    if set_to:
        line = max(set_to)
        message = f"definition must be one plain string, the name of a definition; it is {_shown(set_to[line])}"
        return broken(path, f"{message}: a kernel of several definitions has a file for each", line)
    slip = misspelt_definition(text)
    message = 'no module-level definition = "<name>"'
    folder = next((each for each in path.parents[:3] if (each / "config.toml").is_file()), None)
    if slip is None and folder is not None:  # its sources may lie in solution/<language>/
        return broken(path, f"{message}, as a source of the solution in {folder} has none: give that folder", 1)
    if slip is None:
        entry = "" if "run" in bound_names(tree) else ", and name the function that solves it run"
        return broken(path, f"{message}: add that line, with the name of the definition that this solves{entry}", 1)
    return replace(broken(path, f"{message} (there is {slip.name!r}): rename it", slip.line), definition=slip.value)


def _shown(node: ast.expr) -> str:
    """Write what something is set to, nothing of which is run, in one line."""
    text = "an f-string" if isinstance(node, ast.JoinedStr) else ast.unparse(node).replace("\n", " ")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _misspelt(path: Path, lines: NameLines, said: dict[str, Any]) -> Iterator[Fault]:
    """Warn of what a module nearly says of itself. It may hold any names: only a value of the right type is meant."""
    for name, value in islice(said.items(), _MOST_NAMES):
        meant = nearest(name, _TELLING, ALIKE)
        if meant is not None and meant not in said and isinstance(value, _TELLING[meant]):
            yield Fault(path, lines((name,)), "", slip_of(name, meant), kind="warning")


def constants(tree: ast.Module) -> dict[str, Any]:
    """Give the module-level names that are set to plain values; tuples come as lists, as in JSON."""
    values: dict[str, Any] = {}
    for name, node, _ in _assigned(tree):
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, MemoryError, RecursionError):
            continue
        values[name] = list(value) if isinstance(value, tuple) else value
    return values


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    """Yield the names that statements of the module's own level set, with what they are set to and their lines."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
                if isinstance(target, ast.Name):
                    yield target.id, node.value, node.lineno


def _language(tree: ast.Module) -> str:
    return "triton" if "triton" in imported(tree) else "python"
