"""Which sizes the tensors of a reference have, as axes of the definition, as far as its text tells."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.data.source import Function, signature
from pytest_flashinfer.inputs.constraints.trees import constant
from pytest_flashinfer.inputs.roles.dataflow import called

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Size = str | None  # an axis, an expression of axes or a number; `None` where the text does not tell
Shape = tuple[Size, ...] | None

_ROUNDS: Final = 6
_RETURNED: Final = "return"  # no name can be that
_SAME: Final = frozenset({
    "softmax", "log_softmax", "softmin", "sigmoid", "logsigmoid", "tanh", "relu", "gelu", "silu", "exp", "exp2", "log",
    "log2", "abs", "neg", "sqrt", "rsqrt", "float", "double", "half", "bfloat16", "int", "long", "to", "type",
    "contiguous", "clone", "detach", "clamp", "clamp_min", "clamp_max", "clip", "masked_fill", "nan_to_num", "cumsum",
    "div", "div_", "mul", "mul_", "add", "add_", "sub", "sub_", "zeros_like", "ones_like", "empty_like", "full_like",
    "layer_norm", "rms_norm", "normalize", "dropout", "scatter", "scatter_", "cpu", "cuda", "requires_grad_",
})  # fmt: skip
_NEW: Final = frozenset({"zeros", "ones", "empty", "rand", "randn", "full", "new_zeros", "new_ones", "new_empty"})
_ALL: Final = ast.Slice()


class Shapes:
    """The shapes of names and expressions of a source; `known` are those of the entry's parameters.

    A name that is given tensors of several shapes has none that is known.
    """

    def __init__(self, functions: Mapping[str, Function], entry: str, known: Mapping[str, Shape]) -> None:
        self.functions = functions
        self._local = {name: _bound(function) for name, function in functions.items()}
        given: dict[tuple[str, str], Any] = {(entry, name): shape for name, shape in known.items()}
        self._names, self._sizes = dict(given), dict[tuple[str, str], Size]()
        for _ in range(_ROUNDS):
            before = self._names, self._sizes
            names, sizes = dict(given), dict[tuple[str, str], Size]()
            for where, name, value in self._assigned():
                shape, size = self.of(where, value), self.size(where, value)
                names[where, name] = shape if names.get((where, name), shape) == shape else None
                sizes[where, name] = size if sizes.get((where, name), size) == size else None
            self._names, self._sizes = names, sizes
            if (names, sizes) == before:
                break

    def of(self, where: str, node: ast.AST | None) -> Shape:
        """Return the shape of an expression in a function."""
        if isinstance(node, ast.Name):
            return self._names.get((where, node.id))
        if isinstance(node, ast.UnaryOp):
            return self.of(where, node.operand)
        if isinstance(node, ast.Attribute) and node.attr in {"T", "mT"}:
            return _swapped(self.of(where, node.value), -1, -2)
        if isinstance(node, ast.BinOp):
            sides = self.of(where, node.left), self.of(where, node.right)
            return _product(*sides) if isinstance(node.op, ast.MatMult) else _joined(*sides)
        if isinstance(node, ast.Subscript):
            kept = [size for size, part in self.parts(where, node) if part is None or isinstance(part, ast.Slice)]
            return tuple(kept) or None
        return self._of_call(where, node) if isinstance(node, ast.Call) else None

    def size(self, where: str, node: ast.AST | None) -> Size:
        """Return the size that an expression is: of `x.shape[1]` that axis."""
        if isinstance(node, ast.Name):
            return self._sizes.get((where, node.id))
        if isinstance(node, ast.Constant):
            return str(node.value) if isinstance(node.value, int) and node.value is not True else None
        owner, place = None, None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            owner, place = node.value.value, constant(node.slice)
        elif isinstance(node, ast.Call) and called(node) == "size" and isinstance(node.func, ast.Attribute):
            owner, place = node.func.value, constant(node.args[0]) if node.args else None
        elif isinstance(node, ast.Call) and called(node) == "len" and node.args:
            owner, place = node.args[0], 0
        return _at(self.of(where, owner), place)

    def parts(self, where: str, node: ast.Subscript) -> Iterator[tuple[Size, ast.expr | None]]:
        """Yield each size of what is indexed, with what indexes it, and 1 with `None` where an axis is put in."""
        shape = self.of(where, node.value)
        entries = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if shape is None or any(isinstance(each, ast.Starred) for each in entries):
            return
        taken = sum(not _adds(each) and constant(each) is not ... for each in entries)
        rest = [_ALL] * max(0, len(shape) - taken)
        place = next((i for i, each in enumerate(entries) if constant(each) is ...), len(entries))
        sizes = iter(shape)
        for each in (*entries[:place], *rest, *entries[place + 1 :]):
            if _adds(each):
                yield "1", None
                continue
            whole = isinstance(each, ast.Slice) and each.lower is each.upper is each.step is None
            size = next(sizes, None)
            yield (size if whole or not isinstance(each, ast.Slice) else None), each

    def operands(self, where: str, node: ast.Call) -> list[ast.expr]:
        """Return what a call is given by place, first the tensor that it is a method of."""
        function = node.func
        if not isinstance(function, ast.Attribute) or self._is_module(where, function.value):
            return list(node.args)
        return [function.value, *node.args]

    def _is_module(self, where: str, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self._local[where]

    def _of_call(self, where: str, node: ast.Call) -> Shape:
        name, given = called(node), self.operands(where, node)
        shape = self.of(where, given[0]) if given else None
        if isinstance(node.func, ast.Name) and name in self.functions:
            return self._names.get((name, _RETURNED))
        if name in _NEW or name in {"view", "reshape"}:
            sizes = given if name in _NEW and not name.startswith("new") else given[1:]
            listed = sizes[0].elts if sizes and isinstance(sizes[0], ast.Tuple | ast.List) else sizes
            return tuple(self.size(where, each) for each in listed)
        if name in {"matmul", "mm", "linear"} and len(given) > 1:
            other = self.of(where, given[1])
            return _product(shape, _swapped(other, -1, -2) if name == "linear" else other)
        return shape if name in _SAME else _moved(name, shape, [constant(each) for each in given[1:]])

    def _assigned(self) -> Iterator[tuple[str, str, ast.expr]]:
        """Yield each name of each function with what it is given; what a function returns has a name as well."""
        for where, function in self.functions.items():
            for node in ast.walk(function):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        yield from ((where, *pair) for pair in _pairs(target, node.value))
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    yield from ((where, *pair) for pair in _pairs(node.target, node.value))
                elif isinstance(node, ast.For | ast.comprehension):
                    yield from ((where, *pair) for pair in _each(node.target, node.iter))
                elif isinstance(node, ast.Return) and node.value is not None:
                    yield where, _RETURNED, node.value
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
                    own = signature(self.functions[node.func.id]).positional
                    yield from ((node.func.id, *pair) for pair in zip(own, node.args, strict=False))


def _bound(function: Function) -> set[str]:
    """Return the names that a function binds: other ones are of modules."""
    nodes = list(ast.walk(function))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    for i, each in enumerate(target.elts if isinstance(target, ast.Tuple | ast.List) else ()):
        listed = isinstance(value, ast.Tuple | ast.List) and len(value.elts) > i
        part = value.elts[i] if listed else ast.Subscript(value, ast.Constant(i))  # type: ignore[attr-defined]
        yield from _pairs(each, part)


def _each(target: ast.expr, values: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a loop with an entry each of what it goes through."""
    several = isinstance(values, ast.Call) and isinstance(target, ast.Tuple)
    if several and called(values) == "enumerate" and values.args:  # type: ignore[attr-defined]
        yield from _each(target.elts[-1], values.args[0])  # type: ignore[attr-defined]
    elif several and called(values) == "zip":
        for own, value in zip(target.elts, values.args, strict=False):  # type: ignore[attr-defined]
            yield from _each(own, value)
    else:
        yield from _pairs(target, ast.Subscript(values, ast.Constant(0)))


def _adds(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is None


def _at(shape: Shape, place: Any) -> Size:
    fits = shape is not None and isinstance(place, int) and -len(shape) <= place < len(shape)
    return shape[place] if shape is not None and fits else None


def _swapped(shape: Shape, one: Any = 0, other: Any = 1) -> Shape:
    if shape is None or not all(isinstance(i, int) and -len(shape) <= i < len(shape) for i in (one, other)):
        return None
    sizes = list(shape)
    sizes[one], sizes[other] = sizes[other], sizes[one]
    return tuple(sizes)


def _moved(name: str, shape: Shape, places: list[Any]) -> Shape:
    """Return the shape of a tensor whose axes have changed places, or are one."""
    if not shape:
        return None
    if name == "flatten":
        return _flattened(shape, *(place for place in places if isinstance(place, int)))
    if name in {"transpose", "swapaxes", "t"}:
        return _swapped(shape, *(places or (0, 1)))
    return tuple(_at(shape, place) for place in places) if name == "permute" else None


def _flattened(shape: tuple[Size, ...], first: int = 0, last: int = -1) -> Shape:
    start, end = first % len(shape), last % len(shape)
    return (*shape[:start], None, *shape[end + 1 :])


def _product(left: Shape, right: Shape) -> Shape:
    """Return the shape of a product of matrices, of which the last axis is that of the right one."""
    return None if left is None or not right else (*left[:-1], right[-1])


def _joined(left: Shape, right: Shape) -> Shape:
    """Return the shape of what is computed element by element; a side that is not known counts as no larger."""
    if left is None or right is None:
        return left if right is None else right
    if len(left) < len(right):
        left, right = right, left
    pairs = zip(left[len(left) - len(right) :], right, strict=True)
    return (*left[: len(left) - len(right)], *(b if a in {"1", None} else a for a, b in pairs))
