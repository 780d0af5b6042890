"""Solutions as people edit them: a folder with `config.toml` and sources, or one Python module."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.solution_forms import CONFIG
from pytest_flashinfer.data.solution_module import constants
from pytest_flashinfer.data.solution_rules import unsafe_path
from pytest_flashinfer.data.source import BrokenSource, bound_names, parse_python
from pytest_flashinfer.data.write import solution_document

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Solution

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


class CannotWriteError(ValueError):
    """Why a solution has no such form, in one line."""


def write_folder(solution: Solution, folder: Path) -> list[Path]:
    """Write `config.toml` and the sources under `solution/<language>/`; list the files written.

    Raises CannotWriteError, before anything is written, for a source path that leaves the folder or a value that TOML
    does not have; OSError as the system gives it.
    """
    for source in solution.sources:
        problem = unsafe_path(source.path)
        if problem:
            raise CannotWriteError(f"source path {source.path!r} {problem}")
        if source.extra:
            raise CannotWriteError(f"source {source.path!r}: a file cannot hold {', '.join(map(repr, source.extra))}")
    document = solution_document(solution)
    build = document.pop("spec")
    sources = document.pop("sources")
    text = f"[solution]\n{_table(document)}\n[build]\n{_table(build)}"
    root = folder / "solution" / solution.language
    files = {folder / CONFIG: text, **{root / source["path"]: source["content"] for source in sources}}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())  # not as text: line breaks stay as they are
    return list(files)


def _table(values: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values.items())


def _key(key: str) -> str:
    return key if _BARE_KEY.match(key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # the escapes are those of TOML, but for one


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    raise CannotWriteError("null has no form in TOML: leave the key out")


def module_text(solution: Solution) -> str:
    """Write a solution of one Python source as a module that says itself what it solves.

    What the source does not say is added at its end. Raises CannotWriteError where one module is not enough.
    """
    if len(solution.sources) != 1 or not solution.entry_file.endswith(".py"):
        raise CannotWriteError("a module holds one Python source: write a folder")
    if solution.entry_function != "run":
        raise CannotWriteError(f"a module's entry is 'run', not {solution.entry_function!r}: write a folder")
    (source,) = solution.sources
    unsaid = [*solution.extra.get("spec", {}), *(key for key in solution.extra if key != "spec"), *source.extra]
    unsaid += ["binding"] if solution.binding is not None else []
    if unsaid:
        raise CannotWriteError(f"a module has no place for {', '.join(map(repr, unsaid))}: write a folder or .json")
    tree = parse_python(source.content)
    if isinstance(tree, BrokenSource):
        raise CannotWriteError(f"its source is not Python: {tree.message} (line {tree.line})")
    lines = _lines(solution, tree)
    return f"{source.content.rstrip()}\n\n\n{''.join(lines)}" if lines else source.content


def _lines(solution: Solution, tree: ast.Module) -> list[str]:
    """Give the assignments that a module lacks. Raises CannotWriteError for a name that means something else there."""
    wanted = {
        "definition": solution.definition,
        "name": solution.name,
        "author": solution.author,
        "description": solution.description,
        "language": solution.language,
        "destination_passing_style": solution.destination_passing,
        "target_hardware": list(solution.target_hardware) or None,
        "dependencies": list(solution.dependencies) or None,
    }
    said, bound = constants(tree), bound_names(tree)
    lines = []
    for key, value in wanted.items():
        is_said = key in said and value in (said[key], [said[key]])  # of one name or a list of one
        if key in bound and not is_said and (value is not None or key in said):
            raise CannotWriteError(f"its source has another {key!r} at its top level: correct that, or write a folder")
        if value is not None and not is_said:
            lines.append(f"{key} = {value!r}\n")
    return lines
