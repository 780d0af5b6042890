"""What a reference does about its parameters: which it does without, which it writes into, which have a default."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.source import BrokenSource, Function, functions, parse_python
from pytest_flashinfer.inputs.constraints.trees import constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.model import Definition


_IN_PLACE: Final = re.compile(r"[a-z\d]_$")
_HARMLESS: Final = frozenset({"requires_grad_", "detach_", "share_memory_", "rename_"})


def droppable(definition: Definition) -> frozenset[str]:
    """Return the optional inputs that the reference has a default for, or compares with `None`.

    All optional ones where the reference cannot be read.
    """
    optional = frozenset(name for name, spec in definition.inputs.items() if spec.optional)
    function = entry_of(definition) if optional else None
    return optional if function is None else optional & frozenset(_does_without(function))


def scratch(definition: Definition) -> frozenset[str]:
    """Return the optional inputs that the reference writes into though no output is read back from them.

    What is left in them is nobody's result.
    """
    kept = {spec.param for spec in definition.outputs.values()}
    optional = frozenset(name for name, spec in definition.inputs.items() if spec.optional and name not in kept)
    function = entry_of(definition) if optional else None
    return frozenset() if function is None else optional & _written(function)


def defaults(definition: Definition) -> dict[str, Any]:
    """Return the defaults of the reference's parameters that are literals."""
    function = entry_of(definition)
    if function is None:
        return {}
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    pairs = [*zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default]
    return {arg.arg: value for arg, default in pairs if (value := constant(default)) is not None}


def entry_of(definition: Definition) -> Function | None:
    """Return the reference's function that is called; `None` where it cannot be read."""
    tree = parse_python(definition.reference or "")
    return None if isinstance(tree, BrokenSource) else functions(tree).get(definition.entry)


def _written(function: Function | ast.Lambda) -> set[str]:
    """Return the outer names that `x[...] = `, `x += ` and `x.copy_()` change; not those of a name given anew."""
    own, inner = _scope(function)
    bare = [node.target for node in own if isinstance(node, ast.AugAssign)]
    bare += [node.target for node in own if isinstance(node, ast.AnnAssign) and node.value is None]
    stored = [node for node in own if isinstance(node, (ast.Name, ast.Subscript)) and isinstance(node.ctx, ast.Store)]
    anew = {node.id for node in stored if isinstance(node, ast.Name) and node not in bare}
    targets: list[ast.expr] = [node for node in stored if isinstance(node, ast.Subscript)]
    targets += [node.target for node in own if isinstance(node, ast.AugAssign)]
    calls = (node.func for node in own if isinstance(node, ast.Call))
    targets += [call.value for call in calls if isinstance(call, ast.Attribute) and _in_place(call.attr)]
    names = {_base(target) for target in targets}.union(*(_written(each) - _parameters(each) for each in inner))
    return names - anew - {""}


def _scope(function: Function | ast.Lambda) -> tuple[list[ast.AST], list[Function | ast.Lambda]]:
    """Return the nodes of a function's own names, and the functions in it, which have names of their own."""
    own: list[ast.AST] = []
    inner: list[Function | ast.Lambda] = []
    left = list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner.append(node)
        else:
            own.append(node)
            left += ast.iter_child_nodes(node)
    return own, inner


def _parameters(function: Function | ast.Lambda) -> set[str]:
    args = function.args
    every = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    return {arg.arg for arg in every if arg is not None}


def _in_place(method: str) -> bool:
    """Whether a method changes a tensor: `copy_`, and not `requires_grad_`, which leaves its values as they are."""
    return _IN_PLACE.search(method) is not None and hasattr(torch.Tensor, method) and method not in _HARMLESS


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
