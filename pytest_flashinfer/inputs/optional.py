"""Which inputs may really be left out: what a definition calls optional, its reference has to be able to do without."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_flashinfer.data.source import BrokenSource, functions, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.model import Definition


def droppable(definition: Definition) -> frozenset[str]:
    """Return the optional inputs that the reference has a default for, or compares with `None`.

    All optional ones where the reference cannot be read.
    """
    optional = frozenset(name for name, spec in definition.inputs.items() if spec.optional)
    tree = parse_python(definition.reference or "") if optional else None
    if tree is None or isinstance(tree, BrokenSource) or definition.entry not in functions(tree):
        return optional
    return optional & frozenset(_does_without(functions(tree)[definition.entry]))


def _does_without(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
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
