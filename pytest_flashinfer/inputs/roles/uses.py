"""What a reference does with the values of an integer tensor: looks something up by them, or takes their bits apart."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.source import BrokenSource, functions, parse_python, signature
from pytest_flashinfer.inputs.constraints.trees import constant
from pytest_flashinfer.inputs.dtypes import is_integer
from pytest_flashinfer.inputs.roles.dataflow import KEEPING, NO_VALUES, SAME, Flow, arguments, called
from pytest_flashinfer.inputs.roles.shapes import Shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.model import Definition

_LOOKUPS: Final = frozenset({
    "index_select", "gather", "take", "take_along_dim", "embedding", "embedding_bag", "one_hot", "bincount", "scatter",
    "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add", "index_add_",
    "index_copy", "index_copy_", "index_fill", "index_fill_", "index_put", "index_put_", "nll_loss", "cross_entropy",
    "range", "arange", "repeat_interleave", "split", "tensor_split", "narrow", "select", "isin", "searchsorted",
    "bucketize", "eq", "ne", "lt", "le", "gt", "ge", "roll", "full", "zeros", "ones", "empty",
})  # fmt: skip
_ADDING: Final = frozenset({
    "index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "bincount",
})  # fmt: skip
_OF_OWNER: Final = frozenset({"bincount", "one_hot", "eq", "ne", "lt", "le", "gt", "ge", "isin"})
_PARTS: Final = frozenset({"bitwise_right_shift", "bitwise_and", "__rshift__", "__and__"})
# Calls that are given a tensor, an axis of it and ids along that, in this order.
_ALONG: Final = frozenset({
    "gather", "index_select", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
    "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_",
})  # fmt: skip
_DTYPES: Final = frozenset(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))
# Calls that look nothing up; whatever else is given the values may do so where nobody sees it.
_HARMLESS: Final = NO_VALUES | KEEPING | _LOOKUPS | _PARTS | frozenset({
    "min", "max", "sum", "abs", "zip", "enumerate", "tuple", "sorted", "print", "reversed", "set", "divmod", "round",
    "pow", "str", "where", "stack", "cat", "concat", "mean", "prod", "add", "sub", "mul", "div", "floor_divide", "neg",
    "minimum", "maximum", "remainder", "fmod", "sign", "square", "sqrt", "exp", "exp2", "log", "floor", "ceil",
    "append", "amax", "amin", "cumsum", "cumprod", "flip", "tensor", "as_tensor", "asarray", "from_numpy", "numpy",
    "array", "copy_", "fill_", "repeat", "tile", "broadcast_to", "matmul", "mm", "bmm", "einsum", "dot", "linear",
    "outer", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "logical_and", "logical_or",
    "logical_not", "short", "char", "byte", "sort", "unique", "count_nonzero", "diff", "sub_", "add_", "mul_",
    "masked_fill_",
})  # fmt: skip


@dataclass(slots=True)
class Use:
    """`limits`: something is looked up by the values, or counted off, or they are compared with what is not constant.

    `tables` are the inputs whose rows are looked up; `bits`: values are shifted or masked; `known`: all uses are seen
    and nothing else is done with them. `equated`: the places, line and column, where they are compared for equality.
    `sizes`: the axes, or other sizes, along which they look something up, in the order of the source. `adds`: what goes
    to equal ones is added up, as by `index_add` or `x[ids[i]] += y`.
    """

    limits: bool = False
    bits: bool = False
    known: bool = True
    adds: bool = False
    tables: set[str] = field(default_factory=set)
    equated: set[tuple[int, int]] = field(default_factory=set)
    sizes: dict[str, None] = field(default_factory=dict)


def use(definition: Definition, name: str) -> Use:
    """Return how the reference of a definition uses one of its inputs; nothing is known where it cannot be read."""
    shapes = tuple((each, spec.shape) for each, spec in definition.inputs.items())
    return _use(definition.reference or "", definition.entry, shapes, name)


@lru_cache(maxsize=256)
def _use(reference: str, entry: str, inputs: tuple[tuple[str, tuple[str, ...] | None], ...], name: str) -> Use:
    tree = parse_python(reference)
    source = {} if isinstance(tree, BrokenSource) else functions(tree)
    if entry not in source:
        return Use(known=False)
    taken = signature(source[entry])
    names = [*taken.positional, *taken.keyword_only]
    declared = dict(inputs)
    own = {each: each if each in names else place for each, place in zip_longest(declared, names) if each}
    if not own[name]:
        return Use(known=False)
    parameters = {parameter: each for each, parameter in own.items() if parameter}
    flow, found = Flow(source, entry, parameters, own[name]), Use()
    for where, node in flow.nodes():
        _judge(flow, where, node, found)
    if found.limits:
        shapes = Shapes(source, entry, {own[each]: shape for each, shape in declared.items() if own[each] and shape})
        found.sizes.update((size, None) for size in _sizes(flow, shapes) if size not in {None, "1"})
    return found


def _sizes(flow: Flow, shapes: Shapes) -> Iterator[str | None]:
    """Yield the sizes along which something is looked up by the values themselves."""
    for where, node in flow.nodes():
        if isinstance(node, ast.Subscript):
            parts = ((size, part) for size, part in shapes.parts(where, node) if not isinstance(part, ast.Slice))
            yield from (size for size, part in parts if flow.level(where, part) == SAME)
        elif isinstance(node, ast.Call):
            table, ids, axis = _looked_up(shapes, where, node)
            shape = shapes.of(where, table) or ()
            if flow.level(where, ids) != SAME:
                continue
            if called(node) == "one_hot":
                yield shapes.size(where, table)
            elif isinstance(axis, int) and -len(shape) <= axis < len(shape):
                yield shape[axis]


def _looked_up(shapes: Shapes, where: str, node: ast.Call) -> tuple[ast.expr | None, ast.expr | None, Any]:
    """Return what a call looks up something in, by which ids and along which axis; of `one_hot` how many there are."""
    name, given = called(node), shapes.operands(where, node)
    named = {each.arg: each.value for each in node.keywords}

    def argument(place: int, *words: str) -> ast.expr | None:
        return given[place] if place < len(given) else next((named[word] for word in words if word in named), None)

    first, second, third = argument(0, "input"), argument(1, "dim", "indices", "target"), argument(2, "index", "dim")
    if name in _ALONG and second is not None:
        return first, third, constant(second)
    if name == "take_along_dim" and third is not None:
        return first, second, constant(third)
    if name in {"cross_entropy", "nll_loss"}:
        return first, second, min(1, len(shapes.of(where, first) or ()) - 1)
    if name in {"embedding", "embedding_bag"}:
        return argument(1, "weight"), first, 0
    return (argument(1, "num_classes"), first, None) if name == "one_hot" else (None, None, None)


def _judge(flow: Flow, where: str, node: ast.AST, found: Use) -> None:
    """Note what an expression shows of the values."""
    if isinstance(node, ast.BinOp):
        _of_operator(node.op, flow.level(where, node.left), flow.level(where, node.right), found)
    elif isinstance(node, ast.AugAssign):
        _of_operator(node.op, flow.level(where, node.target), flow.level(where, node.value), found)
        if isinstance(node.target, ast.Subscript) and _is_number(node.target.slice):  # `x[ids] += y` adds up nothing
            found.adds |= flow.level(where, node.target.slice) == SAME
    elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        sides = (node.left, *node.comparators)
        fixed = any(constant(side) is not None for side in sides)
        found.limits |= not fixed and any(flow.level(where, side) for side in sides)
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and SAME in (flow.level(where, side) for side in sides):
            found.equated.add((node.lineno, node.col_offset))
    elif isinstance(node, ast.Subscript):
        _look_up(flow, where, node, found)
    elif isinstance(node, ast.Call):
        _of_call(flow, where, node, found)


def _is_number(tree: ast.expr) -> bool:
    """Whether a tree surely is one number, as `int(ids[i])` and `ids[i].item()` are."""
    return isinstance(tree, ast.Call) and called(tree) in {"int", "item"}


def _of_operator(operator: ast.operator, left: int, right: int, found: Use) -> None:
    found.bits |= bool(isinstance(operator, (ast.RShift, ast.BitAnd)) and left)
    found.bits |= bool(isinstance(operator, ast.BitAnd) and right)
    found.limits |= bool(isinstance(operator, (ast.LShift, ast.RShift)) and right)


def _look_up(flow: Flow, where: str, node: ast.Subscript, found: Use) -> None:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for i, part in enumerate(parts):
        ends = (part.lower, part.upper) if isinstance(part, ast.Slice) else (part,)
        level = max(flow.level(where, end) for end in ends)
        found.limits |= level > 0
        table = flow.input_of(where, node.value)
        if level == SAME and i == 0 and table and not isinstance(part, ast.Slice):
            found.tables.add(table)


def _of_call(flow: Flow, where: str, node: ast.Call, found: Use) -> None:
    name, given = called(node), arguments(node)
    most = max((flow.level(where, each) for each in given), default=0)
    owner = flow.level(where, node.func.value) if isinstance(node.func, ast.Attribute) else 0
    found.bits |= name in _PARTS and (most or owner) > 0
    accumulated = name.startswith("index_put") and any(each.arg == "accumulate" for each in node.keywords)
    found.adds |= (name in _ADDING or accumulated) and SAME in (most, owner if name == "bincount" else 0)
    found.limits |= (name in _LOOKUPS and most > 0) or (name in _OF_OWNER and owner > 0)
    if name == "view" and owner and given and called(given[0]) in _DTYPES:
        whole = is_integer(called(given[0]))  # the same bits as other integers; of floats not all are numbers
        found.bits, found.known = found.bits or whole, found.known and whole
    here = isinstance(node.func, ast.Name) and name in flow.functions
    if max(most, owner) and name not in _HARMLESS and not here:
        found.known = False
    if most == SAME and name in {"embedding", "index_select"}:
        found.tables.update(filter(None, (flow.input_of(where, each) for each in _tables(node, name))))


def _tables(node: ast.Call, name: str) -> Iterator[ast.expr]:
    """Yield what such a call takes whole rows of, as far as it is the first axis."""
    if name == "embedding":
        yield from node.args[1:2]
    elif len(node.args) > 1 and constant(node.args[-2]) == 0:  # after the dimension comes the index
        yield node.args[0] if isinstance(node.args[0], ast.Name) else _owner(node)


def _owner(node: ast.Call) -> ast.expr:
    return node.func.value if isinstance(node.func, ast.Attribute) else node.func
