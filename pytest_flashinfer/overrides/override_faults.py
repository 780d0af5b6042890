"""Where an override in a conftest.py beside a definition is at fault, and with which error, in lines that name it."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_flashinfer.data.raised import told
from pytest_flashinfer.judge.tolerance import NAMES
from pytest_flashinfer.judge.verdict import Verdict

_OF = {  # what the functions are called with, that these fixtures return
    "inputs": "axes, recipe and workload",
    "compare": "call and truth",
    "flops": "a case",
}


@dataclass(frozen=True)
class OverrideFault:
    """Says where an override is at fault: `given` is what the fixture `name` returns, `fixture` its own function."""

    name: str
    given: object
    invocation_dir: Path
    fixture: object = None

    @property
    def begins(self) -> str:
        """Where the override begins; where that is not known of a callable, where its fixture does."""
        return position(self.given, self.invocation_dir) or position(self.fixture, self.invocation_dir) or "conftest.py"

    def told(self, error: Exception) -> str:
        """Return in a line where the override ended with an error, and with which."""
        if callable(self.given):
            return f"{self.place(error)}: {told(error)}"
        return f"{self.begins}: fixture {self.name} returns {self.given!r:.40}, not a function of {_OF[self.name]}"

    def place(self, error: BaseException, *, code: bool = False) -> str:
        """Return the innermost line, in the file that the override lies in, which an error passed through."""
        frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is that of the call here
        inside = [frame for frame in frames if frame.filename == frames[0].filename]
        if not inside:
            return self.begins
        place = f"{_shown(inside[-1].filename, self.invocation_dir)}:{inside[-1].lineno}"
        return f"at {place} in {inside[-1].name}: {inside[-1].line}" if code else place


def unusable(said: str) -> BaseException:
    """Return what ends the setup of an item, for a fixture or a tolerance with which nothing can be judged.

    pytest shows its one line; its verdict is blamed on no solution, of which none was called.
    """
    error: Any = pytest.fail.Exception(f"INVALID_REFERENCE: {said}", pytrace=False)
    error.verdict, error.built = Verdict("INVALID_REFERENCE", said), False
    return cast("BaseException", error)


def fixture_of(item: pytest.Function, name: str) -> object:
    """Return the function of the fixture that an item gets by a name."""
    return item._fixtureinfo.name2fixturedefs[name][-1].func  # noqa: SLF001 - pytest tells it nowhere else


def position(function: object, invocation_dir: Path) -> str:
    """Return where a callable begins, as file and line; an empty string where it does not tell."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return f"{_shown(code.co_filename, invocation_dir)}:{code.co_firstlineno}" if code is not None else ""


def raised_in_fixture(item: pytest.Function, error: Exception) -> str | None:
    """Return in a line what the body of an override's fixture ended with; `None` where no override raised `error`."""
    names = {
        made.func.__code__: name
        for name in (*_OF, "tolerance")
        for made in item._fixtureinfo.name2fixturedefs.get(name, ())  # noqa: SLF001 - pytest tells it nowhere else
        if hasattr(made.func, "__code__") and not made.func.__module__.startswith("pytest_flashinfer.")
    }
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    last = max((number for number, (code, _) in enumerate(frames) if code in names), default=None)
    if last is None:
        return None
    code = frames[last][0]
    *_, line = (line for each, line in frames[last:] if each.co_filename == code.co_filename)
    at = f"{_shown(code.co_filename, item.config.invocation_params.dir)}:{line}"
    unknown = isinstance(error, TypeError) and str(error).startswith("Tolerance.__init__() got an unexpected")
    return f"{at}: fixture {names[code]}: {told(error)}" + f"; there are {', '.join(NAMES)}, outputs" * unknown


def _shown(file: str, invocation_dir: Path) -> str:
    path = Path(file)
    return (path.relative_to(invocation_dir) if path.is_relative_to(invocation_dir) else path).as_posix()
