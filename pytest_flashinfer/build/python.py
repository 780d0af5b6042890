"""Python solutions: their files are imported from disk under a private name."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build.base import Request, entry_path
from pytest_flashinfer.build.errors import BuildError, describe, place, traceback_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PRIVATE = "_fib_solution"  # the package that a solution's modules live in, so that they shadow nothing


class PythonBuilder:
    """Imports the entry file; `package` is what a domain language needs to be importable, `None` for plain Python."""

    def __init__(self, language: str = "python", package: str | None = None, project: str | None = None) -> None:
        self.languages = (language,)
        self.package = package
        self.project = project or package

    def unavailable(self, device: str) -> str | None:  # noqa: ARG002 - plain Python runs wherever torch does
        """Say which package is missing, or `None`."""
        if self.package is None or importable(self.package):
            return None
        return f"language {self.languages[0]} needs the package {self.package}; pip install {self.project}"

    def build(self, request: Request, folder: Path) -> Callable[..., Any]:
        """Import the entry file and return its entry function."""
        alone = request["module"]
        module = import_entry(entry_path(request, folder), folder, alone=alone)
        return find_function(module, request["entry_function"], request["entry_file"], alone=alone)


def importable(package: str) -> bool:
    """Whether `import package` would find something; imports nothing but the parents of a dotted name."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def import_entry(path: Path, folder: Path, *, alone: bool = False) -> ModuleType:
    """Execute the Python file `path` of the solution in `folder` as a module.

    Its siblings are importable by plain name (`import helper`), from the solution's root (`from src.helper import x`)
    and relatively (`from .helper import x`). Whatever the import raises comes back as a `BuildError`. A file that
    is `alone` has no siblings: its author is told how it gets some.
    """
    root = folder.resolve()
    for entry in dict.fromkeys((str(root), str(path.parent))):
        if entry not in sys.path:
            sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        with _no_bytecode():
            return _execute(_parent_package(root, path), path)
    except BuildError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit at import is a failed build too, and is reported
        where = place(error, folder)
        hint = _missing(error.name, alone=alone) if isinstance(error, ModuleNotFoundError) else ""
        message = f"{path.relative_to(root)} does not import: {describe(error)}{f' at {where}' if where else ''}{hint}"
        raise BuildError(message, traceback_text(error, folder)) from None


def _missing(module: str | None, *, alone: bool) -> str:
    name = str(module).removeprefix(f"{PRIVATE}.")
    if not alone:
        return f"; install {name} or add its source"
    return f"; install {name}, or, if it is a file of yours, put both into a folder with a config.toml"


def find_function(module: ModuleType, name: str, file: str, *, alone: bool = False) -> Callable[..., Any]:
    """Return the callable `name` of `module`. Raises BuildError where there is none, with the functions found.

    A file that is `alone` has nothing that could name another entry.
    """
    function = vars(module).get(name)
    if function is None:
        found = [key for key, value in vars(module).items() if _own_function(value, module)]
        listed = ", ".join(found) or "none"
        hint = f"name the one that solves it {name}" if alone else "see entry_point"
        raise BuildError(f"{file} has no function {name!r}; functions found: {listed}; {hint}")
    if type(function).__module__.partition(".")[0] == "triton":
        raise BuildError(f"{name} in {file} is a @triton.jit kernel; the entry point is the function that launches it")
    if not callable(function):
        raise BuildError(f"{name} in {file} is of type {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _own_function(value: object, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _parent_package(root: Path, path: Path) -> str:
    """Make the packages between `root` and `path` importable under the private name, for relative imports."""
    name, folder = PRIVATE, root
    _package(name, folder)
    for part in path.parent.relative_to(root).parts:
        name, folder = f"{name}.{part.replace('.', '_')}", folder / part
        _package(name, folder)
    return name


def _package(name: str, folder: Path) -> None:
    initializer = folder / "__init__.py"
    if initializer.is_file():
        _execute(name, initializer, [str(folder)])
        return
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


def _execute(parent: str, path: Path, search: list[str] | None = None) -> ModuleType:
    name = parent if search is not None else f"{parent}.{path.stem.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path.name} is not a Python file; entry_point of this language names a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    """Write no .pyc: it is matched by size and whole seconds only, and could outlive an edit of the source."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
