"""What a reference does about its parameters: which it does without, which it writes into, which have a default."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.source import BrokenSource, Function, functions, parse_python
from pytest_flashinfer.inputs.hints import constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.model import Definition


_IN_PLACE: Final = re.compile(r"[a-z]_$")


def droppable(definition: Definition) -> frozenset[str]:
    """Return the optional inputs that the reference has a default for, or compares with `None`.

    All optional ones where the reference cannot be read.
    """
    optional = frozenset(name for name, spec in definition.inputs.items() if spec.optional)
    function = _entry(definition) if optional else None
    return optional if function is None else optional & frozenset(_does_without(function))


def scratch(definition: Definition) -> frozenset[str]:
    """Return the optional inputs that the reference writes into though no output is read back from them.

    What is left in them is nobody's result, and a reference that changes its inputs cannot be asked twice.
    """
    kept = {spec.param for spec in definition.outputs.values()}
    optional = frozenset(name for name, spec in definition.inputs.items() if spec.optional and name not in kept)
    function = _entry(definition) if optional else None
    return frozenset() if function is None else optional & frozenset(_written(function))


def defaults(definition: Definition) -> dict[str, Any]:
    """Return the defaults of the reference's parameters that are literals."""
    function = _entry(definition)
    if function is None:
        return {}
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    pairs = [*zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default]
    return {arg.arg: value for arg, default in pairs if (value := constant(default)) is not None}


def _entry(definition: Definition) -> Function | None:
    tree = parse_python(definition.reference or "")
    return None if isinstance(tree, BrokenSource) else functions(tree).get(definition.entry)


def _written(function: Function) -> Iterator[str]:
    """Yield the parameters that `x[...] = `, `x += ` and `x.copy_()` change; not those of a name given anew."""
    anew = {n.id for node in ast.walk(function) if isinstance(node, ast.Assign) for n in node.targets
            if isinstance(n, ast.Name)}  # fmt: skip
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [target for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _IN_PLACE.search(node.func.attr):
            targets = [node.func.value]
        yield from {name for target in targets if (name := _base(target)) not in {*anew, ""}}


def _base(target: ast.expr) -> str:
    """Return the name that `x`, `x[i]` or `x[i][j]` is of."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _does_without(function: Function) -> Iterator[str]:
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    yield from (arg.arg for arg in positional[len(positional) - len(args.defaults) :])
    yield from (arg.arg for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is not None)
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
            if any(isinstance(other, ast.Constant) and other.value is None for other in node.comparators):
                yield node.left.id
        elif isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, ast.Name):
            yield node.test.id
