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
METHODS = frozenset((
    "item", "max", "min", "amax", "amin", "sum", "prod", "all", "any", "numel", "nelement", "size", "dim", "ndimension",
    "long", "int", "float", "double", "bool", "abs", "tolist", "diff", "flatten", "cpu", "isfinite", "isnan", "isinf",
    "argmax", "argmin", "ceil", "floor",
))  # fmt: skip
ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "device"})
TORCH_FUNCTIONS = METHODS - {"item", "size", "dim", "long", "int", "float", "double", "bool", "tolist", "cpu"}
_NODES = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Subscript, ast.Slice, ast.IfExp,
    ast.Tuple, ast.List, ast.Set, ast.GeneratorExp, ast.ListComp, ast.comprehension,
    ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip


class ConstraintError(ValueError):
    """Why a constraint cannot be parsed or computed, in one line."""


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


def _cdiv(a: Any, b: Any) -> Any:
    return -(-a // b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "max": _own("max", max), "min": _own("min", min), "sum": _own("sum", sum), "abs": abs,
    "all": _own("all", all), "any": _own("any", any), "int": _integer, "float": float, "bool": bool, "round": round,
    "range": _range, "sorted": _collected(sorted), "set": _collected(set), "tuple": _collected(tuple),
    "list": _collected(list), "ceil": math.ceil, "floor": math.floor, "cdiv": _cdiv, "ceil_div": _cdiv,
}  # fmt: skip


def _arange(*args: Any, device: Any = None, dtype: str | None = None) -> Any:
    """Make a tensor of whole numbers, of no more than a call may take: `dtype` is a name, as texts stand for them."""
    torch = sys.modules.get("torch")  # this floor does without it; where there are tensors to compare with it is there
    if torch is None or len(range(*args)) > MAX_ARANGE:
        raise ConstraintError(f"torch.arange of more than {MAX_ARANGE} numbers, or without tensors")
    return torch.arange(*args, device=device, dtype=None if dtype is None else getattr(torch, dtype))


MAKERS: dict[str, Callable[..., Any]] = {"arange": _arange}  # of `torch`, which make tensors of no others
MATH = {name: getattr(math, name) for name in ("ceil", "floor", "gcd", "lcm", "log2", "sqrt", "isqrt", "inf")}


def check_tree(tree: ast.expr) -> None:
    """Refuse, with an UnsupportedError, what a constraint may not contain."""
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
        known = TORCH_FUNCTIONS | MAKERS.keys() if of == "torch" else MATH if of == "math" else METHODS
        if node.func.attr not in known:
            raise UnsupportedError(f"function {of or ''}.{node.func.attr}() is not known here")
    else:
        raise UnsupportedError("only functions with a name may be called")
