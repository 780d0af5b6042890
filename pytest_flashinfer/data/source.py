"""Facts about Python source that are read from its syntax tree: nothing here runs any of it."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_SOURCE = 1 << 20  # characters; the parser's memory is some hundred times the text
Function = ast.FunctionDef | ast.AsyncFunctionDef
_KEEP_PARAMETERS = ("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.compile")  # as decorators
_BINDERS = ("globals", "locals", "vars", "setattr", "exec")
_INSIDES = ("__code__", "__dict__", "__setattr__")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class BrokenSource:
    """Why source does not parse; `line` counts from 1 in that source."""

    message: str
    line: int = 1


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a function: the positional ones in order, how many have no default, and what else it takes.

    `keyword_only` are those that have to be given, `keywords` all that are taken by keyword only.
    """

    positional: tuple[str, ...]
    required: int
    varargs: bool
    keyword_only: tuple[str, ...]
    kwargs: bool
    keywords: tuple[str, ...]


@lru_cache(maxsize=32)  # several rules look at one source in turn
def parse_python(source: str) -> ast.Module | BrokenSource:
    """Parse source without running it; what the parser refuses, whatever the reason, is a `BrokenSource`.

    The tree is shared by all callers: none may change it.
    """
    if len(source) > MAX_SOURCE:
        return BrokenSource(f"longer than {MAX_SOURCE >> 20} Mi characters: not parsed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser warns of odd escapes in code that is not ours
            return ast.parse(source)
    except SyntaxError as error:
        return BrokenSource(error.msg or "invalid syntax", error.lineno or 1)
    except (ValueError, RecursionError, MemoryError) as error:
        return BrokenSource(str(error) or "too deeply nested to be parsed")


def functions(tree: ast.Module) -> dict[str, Function]:
    """Top-level functions in the order of the source; of two with one name the later one counts."""
    found: dict[str, Function] = {}
    for node in tree.body:
        if isinstance(node, Function):
            found.pop(node.name, None)
            found[node.name] = node
    return found


def bound_names(tree: ast.Module) -> set[str]:
    """Names that the module binds at its top level, by definition, assignment or import."""
    names: set[str] = set()
    for node in _walk_scope(tree):
        if isinstance(node, (*_SCOPES[:3],)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def binds_once(tree: ast.Module, name: str) -> bool:
    """Whether a module binds a name of its top level in one place only; what `import *` binds nobody can tell."""
    times = 0
    for node in _walk_scope(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            times += (name in bound) + 2 * ("*" in bound)
        elif isinstance(node, (*_SCOPES[:3],)):
            times += node.name == name
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            times += node.id == name
    return times == 1


def is_as_written(tree: ast.Module, function: Function) -> bool:
    """Whether a function of the top level is sure to be what its name stands for when the module is loaded.

    It is not where a decorator may wrap it, where the name is bound again, or where code may do so that binds by text.
    """
    if not binds_once(tree, function.name) or any(
        ast.unparse(mark).partition("(")[0] not in _KEEP_PARAMETERS for mark in function.decorator_list
    ):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Global) and function.name in node.names:
            return False
        if isinstance(node, ast.Name) and node.id in _BINDERS:
            return False
        bound = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr == function.name
        if bound or (isinstance(node, ast.Attribute) and node.attr in _INSIDES):
            return False
    return True


def _walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of one scope; the scopes inside it are yielded, not entered."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _SCOPES):
            todo.extend(ast.iter_child_nodes(node))


def signature(function: Function) -> Signature:
    """Read the parameters of a function."""
    args = function.args
    positional = tuple(arg.arg for arg in (*args.posonlyargs, *args.args))
    needed = tuple(arg.arg for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None)
    keywords = tuple(arg.arg for arg in args.kwonlyargs)
    required = len(positional) - len(args.defaults)
    return Signature(positional, required, args.vararg is not None, needed, bool(args.kwarg), keywords)


def returns_value(function: Function) -> bool:
    """Whether some `return` of the function itself gives a value."""
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in _walk_scope(function)
    )


def writes_in_place(function: Function) -> bool:
    """Whether a function can only be meant to write into what it is given: it ends, and neither returns nor yields."""
    yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _walk_scope(function))
    return not (returns_value(function) or yields or isinstance(function.body[-1], ast.Raise))


def imported(tree: ast.AST) -> set[str]:
    """Top-level packages that are imported anywhere in the source."""
    return {
        (alias.name if isinstance(node, ast.Import) else node.module or "").split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def has_triton_kernels(source: str) -> bool:
    """Whether Python source imports Triton and decorates a function with a `jit`."""
    tree = parse_python(source)
    if isinstance(tree, BrokenSource) or "triton" not in imported(tree):
        return False
    marks = [mark for node in ast.walk(tree) if isinstance(node, Function) for mark in node.decorator_list]
    plain = [mark.func if isinstance(mark, ast.Call) else mark for mark in marks]
    return any(getattr(mark, "attr", getattr(mark, "id", "")) == "jit" for mark in plain)


def style(function: Function, inputs: Sequence[str], outputs: Sequence[str]) -> Literal["return", "destination"]:
    """Tell whether a reference writes into outputs that it is given: it then needs more than the inputs."""
    taken = signature(function)
    enough = taken.varargs or len(taken.positional) >= len(inputs) + len(outputs)
    return "destination" if taken.required > len(inputs) and enough and not returns_value(function) else "return"
