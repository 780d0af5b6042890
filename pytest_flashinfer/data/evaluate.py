"""Walking the checked syntax tree of a constraint, within a budget of work."""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.vocabulary import (
    FUNCTIONS,
    MATH,
    MODULES,
    OF_NUMBERS,
    OF_TORCH,
    ConstraintError,
    NoTruthError,
    dtype_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_STEPS = 200_000
MAX_BITS = 4096  # of an integer result
_LIMITED = (str, bytes, tuple, list, set, frozenset)
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.RShift: operator.rshift, ast.Div: operator.truediv, ast.Pow: operator.pow, ast.LShift: operator.lshift,
}  # fmt: skip
_GROWTH: dict[type[ast.operator], Callable[[int, int], int]] = {  # bits of the result, at most
    ast.Pow: lambda a, b: a.bit_length() * b,
    ast.LShift: lambda a, b: a.bit_length() + b,
    ast.Mult: lambda a, b: a.bit_length() + b.bit_length(),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: lambda value: not value if isinstance(value, bool) else ~value,  # as tensors of bools have it
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class _Walk:
    """One evaluation: the names it knows, how far apart equal floats may be, and the work it may still do."""

    def __init__(self, env: Mapping[str, Any], tolerance: float) -> None:
        self.env = dict(env)
        self.tolerance = tolerance
        self.steps = 0

    def value(self, node: ast.AST) -> Any:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ConstraintError("takes too many steps")
        return _HANDLERS[type(node)](self, node)


def _constant(walk: _Walk, node: Any) -> Any:
    del walk
    if node.value is not None and not isinstance(node.value, (int, float, str)):
        raise ConstraintError(f"{node.value!r} is not allowed in a constraint")
    return node.value.removeprefix("torch.") if isinstance(node.value, str) else node.value


def _name(walk: _Walk, node: Any) -> Any:
    value = _known(walk, node)
    if isinstance(value, str):
        return value.removeprefix("torch.")  # as the names of dtypes in the constraint
    return value if type(value) is int else _as_numbers(value)


def _known(walk: _Walk, node: Any) -> Any:
    try:
        return walk.env[node.id]
    except KeyError:
        raise ConstraintError(f"{node.id!r} has no value") from None


def _as_numbers(value: Any) -> Any:
    """Return a tensor of unsigned integers in 64 bits where torch compares and adds up none of its dtype."""
    return value.long() if str(getattr(value, "dtype", "")).startswith("torch.uint") and value.itemsize > 1 else value


def _attribute(walk: _Walk, node: Any) -> Any:
    if isinstance(node.value, ast.Name) and node.value.id in MODULES and node.value.id not in walk.env:
        return MATH[node.attr] if node.value.id == "math" else node.attr  # torch.int32 is the text "int32"
    if node.attr == "dtype":
        owner = _known(walk, node.value) if isinstance(node.value, ast.Name) else walk.value(node.value)
        return str(owner.dtype).removeprefix("torch.")
    owner = walk.value(node.value)
    if node.attr in ("shape", "ndim") and isinstance(owner, (int, float)):
        return () if node.attr == "shape" else 0
    return tuple(owner.shape) if node.attr == "shape" else getattr(owner, node.attr)


def _call(walk: _Walk, node: Any) -> Any:
    args = [walk.value(argument) for argument in node.args]
    kwargs = {keyword.arg: walk.value(keyword.value) for keyword in node.keywords if keyword.arg}
    if isinstance(node.func, ast.Name):
        result = FUNCTIONS[node.func.id](*args, **kwargs)
        walk.steps += len(result) // 16 if isinstance(result, (range, *_LIMITED)) else 0  # walked in C, yet not free
        return result
    attr = node.func.attr
    args = [dtype_of(value) for value in args]
    kwargs = {name: dtype_of(value) for name, value in kwargs.items()}
    if isinstance(node.func.value, ast.Name) and node.func.value.id in MODULES - walk.env.keys():
        if node.func.value.id == "math":
            return MATH[attr](*args)
        return OF_TORCH[attr](*args, **kwargs) if attr in OF_TORCH else getattr(args[0], attr)(*args[1:], **kwargs)
    owner = walk.value(node.func.value)
    if isinstance(owner, (int, float)) and attr in OF_NUMBERS:  # a Python scalar where a 0-d tensor may stand as well
        return {"numel": 1, "nelement": 1, "dim": 0, "ndimension": 0, "abs": abs(owner)}.get(attr, owner)
    return getattr(owner, attr)(*args, **kwargs)


def _binary(walk: _Walk, node: Any) -> Any:
    left, right = walk.value(node.left), walk.value(node.right)
    kind = type(node.op)
    if kind is not ast.Add and (isinstance(left, _LIMITED) or isinstance(right, _LIMITED)):
        raise ConstraintError("arithmetic on a text or a list")
    if isinstance(left, int) and isinstance(right, int):
        if kind is ast.Div and right and left % right == 0:
            return left // right  # exact, however large
        if kind in _GROWTH and _GROWTH[kind](left, right) > MAX_BITS:
            raise ConstraintError("a number grows too large")
    try:
        return _BINARY[kind](left, right)
    except (ZeroDivisionError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "ZeroDivisionError" not in str(error):  # so torch has it
            raise
        raise ConstraintError(f"cannot be computed: {ast.unparse(node)} divides by zero") from error


def _compare(walk: _Walk, node: Any) -> Any:
    left = walk.value(node.left)
    result: Any = True
    for kind, right_node in zip(node.ops, node.comparators, strict=True):
        right = walk.value(right_node)
        near = _snapped(left, right, walk.tolerance) if walk.tolerance else left
        result = _COMPARE[type(kind)](_wide_enough(near, right), _wide_enough(right, near))
        if len(node.ops) > 1 and not result:
            return False
        left = right
    return result


def _snapped(value: Any, other: Any, tolerance: float) -> Any:
    """Return what a number is compared with, or is looked for in, in its place where the two are that near."""
    for each in other if isinstance(other, (tuple, list, set)) else (other,):
        both = isinstance(value, (int, float)) and isinstance(each, (int, float))
        if both and isinstance(value + each, float) and math.isclose(value, each, rel_tol=tolerance):
            return each
    return value


def _wide_enough(value: Any, other: Any) -> Any:
    """Return a tensor of integers in a dtype that holds the number it is compared with, which torch would wrap."""
    if type(other) is not int or type(value) is int:  # sizes, as a rule: thousands are compared to find a few
        return value
    kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if not kind.startswith(("int", "uint")):
        return value
    bits = int(kind.lstrip("uint"))
    low, high = (0, 1 << bits) if kind.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return value if low <= other < high else value.long()


def _boolean(walk: _Walk, node: Any) -> Any:
    stop = isinstance(node.op, ast.Or)
    result: Any = None
    for part in node.values:
        result = walk.value(part)
        if bool(result) is stop:
            return result
    return result


def _subscript(walk: _Walk, node: Any) -> Any:
    return walk.value(node.value)[_index(walk, node.slice)]


def _index(walk: _Walk, node: Any) -> Any:
    if isinstance(node, ast.Slice):
        return slice(*(walk.value(part) if part is not None else None for part in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Tuple):
        return tuple(_index(walk, part) for part in node.elts)
    return walk.value(node)


def _comprehension(walk: _Walk, node: Any) -> Any:
    def loop(generators: list[ast.comprehension]) -> Iterator[Any]:
        if not generators:
            yield walk.value(node.elt)
            return
        for element in walk.value(generators[0].iter):
            _bind(walk, generators[0].target, element)
            if all(walk.value(test) for test in generators[0].ifs):
                yield from loop(generators[1:])

    return list(loop(node.generators))


def _bind(walk: _Walk, target: ast.AST, element: Any) -> None:
    if isinstance(target, ast.Name):
        walk.env[target.id] = element
    elif isinstance(target, ast.Tuple):
        for part, value in zip(target.elts, element, strict=True):
            _bind(walk, part, value)


_HANDLERS: dict[type[ast.AST], Callable[[_Walk, Any], Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Call: _call, ast.BinOp: _binary,
    ast.UnaryOp: lambda walk, node: _UNARY[type(node.op)](walk.value(node.operand)), ast.Compare: _compare,
    ast.BoolOp: _boolean, ast.Subscript: _subscript, ast.GeneratorExp: _comprehension, ast.ListComp: _comprehension,
    ast.IfExp: lambda walk, node: walk.value(node.body if walk.value(node.test) else node.orelse),
    ast.Tuple: lambda walk, node: tuple(walk.value(part) for part in node.elts),
    ast.List: lambda walk, node: [walk.value(part) for part in node.elts],
    ast.Set: lambda walk, node: {walk.value(part) for part in node.elts},
}  # fmt: skip


def is_true(tree: ast.expr, env: Mapping[str, Any], tolerance: float = 0.0) -> bool:
    """Whether a checked tree is true, as it is or with floats equal that are within a relative `tolerance`.

    Raises ConstraintError as `run` does, and NoTruthError.
    """
    try:
        return bool(run(tree, env)) or (tolerance > 0 and bool(run(tree, env, tolerance)))
    except ConstraintError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise NoTruthError(f"has no truth value, ask for `.all()` of it: {str(error).splitlines()[0]}") from error


def run(tree: ast.expr, env: Mapping[str, Any], tolerance: float = 0.0) -> Any:
    """Compute a checked tree; floats within a relative `tolerance` of each other are equal, and neither is less.

    Raises ConstraintError, whatever goes wrong inside it.
    """
    try:
        return _Walk(env, tolerance).value(tree)
    except ConstraintError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConstraintError(f"cannot be computed: {reason}") from error
