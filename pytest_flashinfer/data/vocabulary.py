"""The words of constraints: functions, methods and attributes that one may use, and nothing else."""

from __future__ import annotations

import ast
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NODES = 500
MAX_DEPTH = 40
MAX_RANGE = 100_000
MAX_ARANGE = 1 << 24
MODULES = frozenset({"torch", "math"})
COUNTS = ("flops", "bytes")  # keys of a definition: what a call has to do, as expressions like those of constraints
OF_NUMBERS = frozenset((  # a 0-d tensor has them, and so a number may stand for one
    "item", "max", "min", "amax", "amin", "sum", "prod", "all", "any", "numel", "nelement", "size", "dim", "ndimension",
    "long", "int", "float", "double", "bool", "abs", "tolist", "diff", "flatten", "cpu", "isfinite", "isnan", "isinf",
    "argmax", "argmin", "ceil", "floor",
))  # fmt: skip
METHODS = OF_NUMBERS | frozenset((  # none writes, and what they give is no larger than what they are given
    "clamp", "clip", "clamp_min", "clamp_max", "minimum", "maximum", "round", "trunc", "sign", "sqrt", "square", "exp",
    "log", "log2", "remainder", "cumsum", "cumprod", "mean", "median", "std", "norm", "count_nonzero", "nonzero",
    "unique", "sort", "argsort", "flip", "roll", "gather", "index_select", "eq", "ne", "lt", "le", "gt", "ge", "equal",
    "logical_and", "logical_or", "logical_not", "view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "t",
    "expand_as", "to", "isneginf", "isposinf", "allclose", "isclose", "tril", "triu", "diagonal", "fmod",
    "floor_divide", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "logical_xor", "masked_select",
))  # fmt: skip
ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "device", "T", "values", "indices"})
TORCH_FUNCTIONS = METHODS - {"item", "size", "dim", "long", "int", "float", "double", "bool", "tolist", "cpu", "to"}
_NODES = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Subscript, ast.Slice, ast.IfExp,
    ast.Tuple, ast.List, ast.Set, ast.GeneratorExp, ast.ListComp, ast.comprehension,
    ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip


class ConstraintError(ValueError):
    """Why a constraint cannot be parsed or computed, in one line."""


class NoTruthError(ConstraintError):
    """What a constraint comes to is neither true nor false, as a tensor of several elements is."""


class UnsupportedError(ConstraintError):
    """The constraint is Python, but of a kind that is not computed here: the data may well be right."""


def _own(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Prefer a tensor's own method: the built-in function would walk it element by element."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and not isinstance(args[0], (int, float)) and hasattr(args[0], name):
            return getattr(args[0], name)()
        return plain(*args, **kwargs)

    return call


def _integer(value: Any) -> int:
    if isinstance(value, str):
        raise ConstraintError("int() of a text")
    return int(value)


def _range(*args: Any) -> range:
    result = range(*args)
    if len(result) > MAX_RANGE:
        raise ConstraintError(f"a range of more than {MAX_RANGE} numbers")
    return result


def _collected(kind: Callable[..., Any]) -> Callable[..., Any]:
    def call(values: Any) -> Any:
        return kind(values.tolist() if hasattr(values, "tolist") else values)

    return call


def _lists(kind: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        return list(kind(*(each.tolist() if hasattr(each, "tolist") else each for each in values)))

    return call


def _cdiv(a: Any, b: Any) -> Any:
    return -(-a // b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "max": _own("max", max), "min": _own("min", min), "sum": _own("sum", sum), "abs": abs,
    "all": _own("all", all), "any": _own("any", any), "int": _integer, "float": float, "bool": bool, "round": round,
    "range": _range, "sorted": _collected(sorted), "set": _collected(set), "tuple": _collected(tuple),
    "list": _collected(list), "zip": _lists(zip), "enumerate": _lists(enumerate), "ceil": math.ceil,
    "floor": math.floor, "cdiv": _cdiv, "ceil_div": _cdiv,
}  # fmt: skip


def _torch() -> Any:
    """Return torch. This floor does without it; where there are tensors to compare with it is there."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise ConstraintError("a function of torch where there are no tensors")
    return torch


def dtype_of(value: Any) -> Any:
    """Return the dtype that a text names, as those of torch are told, and anything else as it is."""
    torch = sys.modules.get("torch") if isinstance(value, str) else None
    found = getattr(torch, value, None) if torch is not None else None
    return found if torch is not None and isinstance(found, torch.dtype) else value


def _arange(*args: Any, **kwargs: Any) -> Any:
    if len(range(*args)) > MAX_ARANGE:
        raise ConstraintError(f"torch.arange of more than {MAX_ARANGE} numbers")
    return _torch().arange(*args, **kwargs)


def _filled(name: str) -> Callable[..., Any]:
    def call(*sizes: Any, **kwargs: Any) -> Any:
        own = kwargs.get("size", sizes)
        shape = own[0] if len(own) == 1 and isinstance(own[0], (tuple, list)) else own
        if math.prod(shape) > MAX_ARANGE:
            raise ConstraintError(f"torch.{name} of more than {MAX_ARANGE} numbers")
        return getattr(_torch(), name)(*sizes, **kwargs)

    return call


def _bincount(ids: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Count ids; the result has an entry for each number up to the largest."""
    if max(minlength, int(ids.max()) if ids.numel() else 0) > MAX_ARANGE:
        raise ConstraintError(f"torch.bincount of numbers above {MAX_ARANGE}")
    return _torch().bincount(ids, weights, minlength)


def _tensor(values: Any, **kwargs: Any) -> Any:
    return _torch().tensor(values, **kwargs)


def _of_torch(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(_torch(), name)(*args, **kwargs)

    return call


def _joined(name: str) -> Callable[..., Any]:
    def call(parts: Any, *args: Any, **kwargs: Any) -> Any:
        if sum(part.numel() for part in parts) > MAX_ARANGE:
            raise ConstraintError(f"torch.{name} of more than {MAX_ARANGE} numbers")
        return getattr(_torch(), name)(parts, *args, **kwargs)

    return call


_PLAIN = ("where", "isin", "zeros_like", "ones_like")
OF_TORCH: dict[str, Callable[..., Any]] = {  # which are no methods of their first argument
    "arange": _arange, "bincount": _bincount, "cat": _joined("cat"), "stack": _joined("stack"),
    "ones": _filled("ones"), "zeros": _filled("zeros"), "tensor": _tensor,
    **{name: _of_torch(name) for name in _PLAIN},
}  # fmt: skip
MATH = {name: getattr(math, name) for name in ("ceil", "floor", "gcd", "lcm", "log2", "sqrt", "isqrt", "inf")}


def check_tree(tree: ast.expr) -> None:
    """Refuse what a constraint may not contain. Raises UnsupportedError."""
    level: list[ast.AST] = [tree]
    nodes = 0
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        for node in level:
            _check_node(node)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            break
    if level or nodes > MAX_NODES:
        raise UnsupportedError("too long or too deeply nested")


def _check_node(node: ast.AST) -> None:
    if isinstance(node, ast.Attribute):
        of_module = isinstance(node.value, ast.Name) and node.value.id in MODULES
        if not of_module and node.attr not in METHODS | ATTRIBUTES:
            raise UnsupportedError(f"'.{node.attr}' is not known here")
    elif isinstance(node, ast.Call):
        _check_call(node)
    elif not isinstance(node, _NODES) and not (isinstance(node, ast.keyword) and node.arg):
        raise UnsupportedError(f"{type(node).__name__.lower()} is not allowed in a constraint")


def _check_call(node: ast.Call) -> None:
    if isinstance(node.func, ast.Name):
        if node.func.id not in FUNCTIONS:
            raise UnsupportedError(f"function {node.func.id}() is not known here")
    elif isinstance(node.func, ast.Attribute):
        of = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        known = TORCH_FUNCTIONS | OF_TORCH.keys() if of == "torch" else MATH if of == "math" else METHODS
        if node.func.attr not in known:
            raise UnsupportedError(f"function {of or ''}.{node.func.attr}() is not known here")
    else:
        raise UnsupportedError("only functions with a name may be called")
