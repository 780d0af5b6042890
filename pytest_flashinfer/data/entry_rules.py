"""What the source of a solution shows of its entry function: whether it takes what it will be given. Nothing is run."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from pytest_flashinfer.data.faults import Fault
from pytest_flashinfer.data.source import BrokenSource, functions, is_as_written, parse_python, signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_flashinfer.data.faults import FaultKind, Loaded
    from pytest_flashinfer.data.model import Definition, Solution, SourceFile
    from pytest_flashinfer.data.source import Function, Signature

_STYLE = "destination_passing_style"
COMPILED = ("cuda", "cpp", "cutlass")
_LOADS = (
    "cpp_extension", "load_inline", "load_library", "__global__", "ctypes", "cffi", "tvm_ffi", "nvrtc", "cupy", "numba",
    "cutlass",
)  # fmt: skip


def check_entry(loaded: Loaded[Solution], definition: Definition) -> Iterator[Fault]:
    """Yield what building a solution would stumble over: parameters by number, and a language that its sources are not.

    Parameters in another order, by their names, are only warned of: the call is by position, and names are free.
    An entry that may be another function than its text, decorated or bound once more, is let pass.
    """
    solution = loaded.value
    entry = None if solution is None else _entry(solution)
    if solution is None or entry is None:
        return
    if solution.language in COMPILED and not any(map(_may_compile, solution.sources)):
        message = f"language is {solution.language!r}, and nothing in the sources compiles any: write 'python'"
        yield loaded.fault(("spec", "language"), message, "warning")
    function = written_entry(solution)
    if function is None:
        return
    problem, order = _problem(solution, signature(function), definition), other_order(solution, function, definition)
    said = problem or order
    kind: FaultKind = "fault" if problem else "warning"
    if said and solution.module:
        yield Fault(loaded.path, function.lineno, "", f"{function.name} {said}", kind=kind)
    elif said:
        message = f"{entry.path}:{function.lineno}: {function.name} {said}"
        yield loaded.fault(("spec", "entry_point"), message, kind)


def written_entry(solution: Solution) -> Function | None:
    """Return the entry function of a solution in Python, where its text is sure to be what is called."""
    entry = _entry(solution)
    tree = None if entry is None else parse_python(entry.content)
    if tree is None or isinstance(tree, BrokenSource):
        return None
    function = functions(tree).get(solution.entry_function)
    return function if function is not None and is_as_written(tree, function) else None


def other_order(solution: Solution, function: Function, definition: Definition) -> str | None:
    """Say that parameters have names of what is given to others: who wrote them may think of a call by name."""
    taken, needed = signature(function).positional, _given(solution, definition)
    if all(name == other or name not in needed for name, other in zip(taken, needed, strict=False)):
        return None
    return f"takes {', '.join(taken)}; the definition's order is {', '.join(needed)}, by position: is that meant?"


def _entry(solution: Solution) -> SourceFile | None:
    """Return the source of the entry where it is Python."""
    wanted = posixpath.normpath(solution.entry_file)
    found = (source for source in solution.sources if posixpath.normpath(source.path) == wanted)
    return next(found, None) if wanted.endswith(".py") else None


def _may_compile(source: SourceFile) -> bool:
    return not source.path.endswith(".py") or any(word in source.content for word in _LOADS)


def _problem(solution: Solution, taken: Signature, definition: Definition) -> str | None:
    """Say why a call by position fails, as building the solution would."""
    inputs, fresh, needed = list(definition.inputs), _fresh(definition), _given(solution, definition)
    if taken.keyword_only:
        return f"takes {', '.join(taken.keyword_only)} by keyword only: arguments are given by position"
    if _takes(taken, len(needed)):
        return None
    said = f"takes {', '.join(taken.positional) or 'nothing'}; it is given {', '.join(needed)}"
    other = [*inputs, *fresh] if not solution.destination_passing else inputs
    return f"{said}{_hint(solution, fits=_takes(taken, len(other)), fresh=fresh)}"


def _given(solution: Solution, definition: Definition) -> list[str]:
    """Return what an entry is called with, in that order."""
    return [*definition.inputs, *(_fresh(definition) if solution.destination_passing else ())]


def _fresh(definition: Definition) -> list[str]:
    return [name for name, spec in definition.outputs.items() if spec.param not in definition.inputs]


def _takes(taken: Signature, count: int) -> bool:
    return taken.required <= count and (taken.varargs or count <= len(taken.positional))


def _hint(solution: Solution, *, fits: bool, fresh: Sequence[str]) -> str:
    if not fits:
        return ", by position"
    if not solution.destination_passing:
        return f": set {_STYLE}{' = True' if solution.module else ' to true'} to write into the outputs"
    outputs = f"take {', '.join(fresh)} as well"
    if solution.module:
        return f": return the outputs (or set {_STYLE} = False), or {outputs}"
    return f": set {_STYLE} to false to return them, or {outputs}"
