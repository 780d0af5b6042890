"""A solution as one Python module, which says of itself what it is for. Nothing of it is run."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.faults import Fault
from pytest_flashinfer.data.files import read_text
from pytest_flashinfer.data.misspelt import slip_of
from pytest_flashinfer.data.nearest import ALIKE, nearest
from pytest_flashinfer.data.solution_forms import (
    DEFINITION,
    KNOWN,
    MAX_SOURCE,
    Found,
    KeyLines,
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
_RUN = re.compile(r"^(?:async )?def run\(", re.MULTILINE)


def is_solution_module(text: str) -> bool:
    """Whether Python source is one of a solution: it names a definition at its top level."""
    return DEFINITION.search(text) is not None


def misspelt_definition(text: str) -> re.Match[str] | None:
    """Find where Python source with a function `run` names a definition, but for a slip of the pen."""
    if _RUN.search(text) is None or is_solution_module(text):
        return None
    said = islice(_TEXT.finditer(text), _MOST_NAMES)
    return next((told for told in said if nearest(told[1], ("definition",), ALIKE)), None)


def read_module(path: Path) -> Found:
    """Read a Python module with `definition = "<name>"` and a function `run`; nothing of it is run."""
    text, reason = read_text(path, MAX_SOURCE)
    if text is None:
        return broken(path, reason or "cannot be read")
    tree = parse_python(text)
    if isinstance(tree, BrokenSource):
        return replace(broken(path, f"not Python: {tree.message}", tree.line), definition=told_in_text(text))
    said = _constants(tree)
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
    return Found(path, raw, notes=tuple(notes), warnings=tuple(_misspelt(path, text, said)), lines=KeyLines(text))


def _nameless(path: Path, text: str, tree: ast.Module) -> Found:
    """Say that a module tells no definition, and whom it is for where it nearly does."""
    slip = misspelt_definition(text)
    message = 'no module-level definition = "<name>"'
    if slip is None:
        entry = "" if "run" in bound_names(tree) else ", and name the function that solves it run"
        return broken(path, f"{message}: add that line, with the name of the definition that this solves{entry}", 1)
    line = text.count("\n", 0, slip.start()) + 1
    return replace(broken(path, f"{message} (there is {slip[1]!r}): rename it", line), definition=slip[3])


def _misspelt(path: Path, text: str, said: dict[str, Any]) -> Iterator[Fault]:
    """Warn of what a module nearly says of itself. It may hold any names: only a value of the right type is meant."""
    for name, value in islice(said.items(), _MOST_NAMES):
        meant = nearest(name, _TELLING, ALIKE)
        if meant is not None and meant not in said and isinstance(value, _TELLING[meant]):
            yield Fault(path, KeyLines(text)((name,)), "", slip_of(name, meant), kind="warning")


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Give the module-level names that are set to plain values; tuples come as lists, as in JSON."""
    values: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        try:
            value = ast.literal_eval(node.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            if isinstance(target, ast.Name):
                values[target.id] = list(value) if isinstance(value, tuple) else value
    return values


def _language(tree: ast.Module) -> str:
    return "triton" if "triton" in imported(tree) else "python"
