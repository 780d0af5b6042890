"""Whether a function is sure to leave a tensor as it is, and how many it returns: read in its text, nothing is run.

Sure is only what every use of the tensor shows. Whoever might write into it, under any name, leaves it open.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.source import Function

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LIBRARIES = ("torch", "F", "torch.nn.functional", "torch.linalg", "torch.special")
_FACTS = ("shape", "dtype", "device", "ndim")
_ANEW = (ast.BinOp, ast.Compare)  # what they give is a tensor of its own
_COMPUTES = frozenset({  # functions and methods of torch whose one result is a tensor of its own
    "add", "sub", "mul", "div", "sum", "mean", "exp", "log", "sqrt", "rsqrt", "abs", "clamp", "clone", "matmul", "mm",
    "bmm", "linear", "softmax", "sigmoid", "silu", "gelu", "relu", "tanh", "where", "cat", "stack", "cumsum", "empty",
    "zeros", "ones", "empty_like", "zeros_like", "ones_like",
})  # fmt: skip
_ONE = _COMPUTES | {  # and those whose one result may be a view
    "to", "float", "double", "half", "bfloat16", "int", "long", "type", "contiguous", "view", "reshape", "transpose",
    "permute", "squeeze", "unsqueeze", "expand", "einsum",
}  # fmt: skip
_INTO = {"copy_", "add_", "sub_", "mul_", "div_", "index_copy_", "index_add_", "index_put_", "scatter_", "scatter_add_"}
Parents = dict[ast.AST, ast.AST]


def is_untouched(function: Function, name: str) -> bool:
    """Whether a function is sure to write nothing into what its parameter `name` holds."""
    parents: Parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    if any(isinstance(node, (*_INNER, ast.Global)) for node in parents):
        return False
    names = [node for node in parents if isinstance(node, ast.Name)]
    todo, seen = [name], {name}
    while todo:
        alias = todo.pop()
        for node in names:
            others = _other_names(node, parents) if node.id == alias else set()
            if others is None:
                return False
            todo += others - seen
            seen |= others
    return True


def _other_names(node: ast.expr, parents: Parents) -> set[str] | None:
    """Return the names that get what a name holds where it stands here, `None` where it may be written into."""
    parent = parents[node]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not isinstance(parent, ast.AugAssign):
        return set()  # from here on the name is for something else
    while isinstance(parent, ast.expr) and _passes_on(node, parent):
        node, parent = parent, parents[parent]
    if isinstance(parent, ast.Assign) and parent.value is node:
        return _plain(parent.targets)
    only_read = (
        isinstance(parent, (*_ANEW, ast.Expr, ast.Return))
        or (isinstance(parent, ast.Call) and (_is_given(parent, node) or _is_harmless(parent, node)))
        or (isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.UAdd))
        or (isinstance(parent, ast.Attribute) and parent.attr in _FACTS)
        or (isinstance(parent, ast.Subscript) and parent.slice is node)
        or (isinstance(parent, ast.AugAssign) and parent.value is node)
    )
    return set() if only_read else None


def _passes_on(node: ast.expr, parent: ast.expr) -> bool:
    """Whether an expression writes nothing, and may give what is in `node`, or a view of it."""
    if isinstance(parent, ast.Subscript):
        return parent.value is node and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return isinstance(parent.ctx, ast.Load) and parent.attr not in _FACTS and not parent.attr.endswith("_")
    if isinstance(parent, ast.Call):
        return _is_harmless(parent, node) and getattr(parent.func, "attr", "") not in _COMPUTES
    return isinstance(parent, (ast.IfExp, ast.Tuple, ast.List))


def _is_given(call: ast.Call, node: ast.expr) -> bool:
    """Whether a method writes what is in `node` into another tensor."""
    return node in call.args and isinstance(call.func, ast.Attribute) and call.func.attr in _INTO


def _is_harmless(call: ast.Call, node: ast.expr) -> bool:
    """Whether a method of `node` is called, or a function of torch with it, that does not work in place."""
    odd = any(keyword.arg in ("out", "inplace", None) for keyword in call.keywords)
    return not odd and (call.func is node or (node in call.args and _is_pure(call)))


def _is_pure(call: ast.Call) -> bool:
    """Whether a function of torch is called, and not told to work in place."""
    library, _, name = ast.unparse(call.func).rpartition(".")
    told = any(isinstance(arg, ast.Constant) and arg.value is True for arg in call.args)
    return library in _LIBRARIES and not name.endswith("_") and not told


def _plain(targets: list[ast.expr]) -> set[str] | None:
    """Return the names that an assignment sets, `None` where it sets parts of something."""
    each = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = {part.id for part in each if isinstance(part, ast.Name)}
    return names if all(isinstance(part, ast.Name) for part in each) else None


def values_returned(function: Function) -> int | None:
    """Return how many values a function returns at most, `None` where its text does not tell."""
    most = 0
    for node in _scope(function):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return None
        value = node.value if isinstance(node, ast.Return) else None
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            continue
        if isinstance(value, ast.Tuple) and not any(isinstance(part, ast.Starred) for part in value.elts):
            most = max(most, len(value.elts))
        elif _is_one(value, function):
            most = max(most, 1)
        else:
            return None
    return most


def _is_one(value: ast.expr, function: Function, *, named: bool = True) -> bool:
    """Whether an expression is one tensor, or number, and no tuple."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Attribute) and value.func.attr in _ONE
    if not isinstance(value, ast.Name) or not named:
        return isinstance(value, (*_ANEW, ast.UnaryOp))
    scope = [*_scope(function)]
    more = [node.target for node in scope if isinstance(node, ast.AugAssign)]  # which leaves it what it is
    named_so = [node for node in scope if isinstance(node, ast.Name) and node.id == value.id and node not in more]
    sets = [node.value for node in scope if isinstance(node, ast.Assign) and _sets(node, value.id)]
    told = len(sets) == sum(not isinstance(node.ctx, ast.Load) for node in named_so) > 0
    return told and all(_is_one(each, function, named=False) for each in sets)


def _sets(node: ast.Assign, name: str) -> bool:
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def _scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function's own scope."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, _INNER):
            yield node
            yield from _scope(node)
