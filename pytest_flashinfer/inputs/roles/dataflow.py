"""Which expressions of a reference have the values of one of its parameters, or values that are made of them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.data.source import Function, signature
from pytest_flashinfer.inputs.constraints.trees import constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SAME, MADE = 2, 1  # an expression has the parameter's own values, or some that are made of them
_ROUNDS: Final = 12
_SMALL: Final = 255  # what is masked to this or less is no number of a row any more
_FLOATS: Final = re.compile(r"^(b?float\d*|half|double|bool)")  # what nobody looks anything up by
NO_VALUES: Final = frozenset({
    "shape", "dtype", "device", "ndim", "size", "numel", "nelement", "dim", "stride", "len", "isinstance", "is_cuda",
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones",
    "new_empty", "new_full", "arange", "range", "argsort", "argmax", "argmin", "nonzero", "searchsorted", "bincount",
    "bool", "float", "double", "half", "bfloat16", "eq", "ne", "lt", "le", "gt", "ge", "isin", "any", "all", "one_hot",
})  # fmt: skip
KEEPING: Final = frozenset({
    "int", "long", "to", "type", "cpu", "cuda", "tolist", "item", "contiguous", "clone", "detach", "clamp", "clamp_min",
    "clamp_max", "reshape", "view", "flatten", "ravel", "squeeze", "unsqueeze", "expand", "expand_as", "t", "list",
    "transpose", "permute", "unbind", "chunk", "masked_fill",
})  # fmt: skip
_CAST: Final = frozenset({"to", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach", "int", "long"})


class Flow:
    """Follows one parameter of one function through a source; a name is the same in all of a top-level function.

    `parameters` are those of the function that hold inputs, with the inputs' names.
    """

    def __init__(
        self, functions: Mapping[str, Function], entry: str, parameters: Mapping[str, str], followed: str
    ) -> None:
        self.functions = functions
        self._values: dict[tuple[str, str], int] = {(entry, followed): SAME}
        self._returned: dict[str, int] = {}
        self._aliases = {(entry, own): name for own, name in parameters.items()}
        for _ in range(_ROUNDS):
            before = (dict(self._values), dict(self._returned), dict(self._aliases))
            for where, node in self.nodes():
                self._bind(where, node)
            if before == (self._values, self._returned, self._aliases):
                break

    def nodes(self) -> Iterator[tuple[str, ast.AST]]:
        """Yield every node of every function, with the function's name."""
        for name, function in self.functions.items():
            for node in ast.walk(function):
                yield name, node

    def level(self, where: str, node: ast.AST | None) -> int:
        """Return whether an expression has the values (SAME), or some made of them (MADE), or neither (0)."""
        if node is None or isinstance(node, (ast.Compare, ast.Constant)):
            return 0
        if isinstance(node, ast.Name):
            return self._values.get((where, node.id), 0)
        if isinstance(node, (ast.Subscript, ast.Starred, ast.Attribute)):
            return 0 if getattr(node, "attr", "") in NO_VALUES else self.level(where, node.value)
        if isinstance(node, ast.BinOp):
            return self._of_operator(where, node)
        if isinstance(node, ast.Call):
            return self._of_call(where, node)
        parts = [self.level(where, child) for child in ast.iter_child_nodes(node)]
        keeps = isinstance(node, (ast.IfExp, ast.Tuple, ast.List, ast.ListComp, ast.GeneratorExp))
        return max(parts, default=0) if keeps else min(MADE, max(parts, default=0))

    def input_of(self, where: str, node: ast.AST | None) -> str | None:
        """Return the input that an expression is, in whichever dtype."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CAST:
            node = node.func.value
        return self._aliases.get((where, node.id)) if isinstance(node, ast.Name) else None

    def _of_operator(self, where: str, node: ast.BinOp) -> int:
        masked = isinstance(node.op, ast.BitAnd) and (_is_small(node.left) or _is_small(node.right))
        if isinstance(node.op, ast.Mod) or masked:
            return 0
        right = 0 if isinstance(node.op, (ast.LShift, ast.RShift)) else self.level(where, node.right)
        return min(MADE, max(self.level(where, node.left), right))

    def _of_call(self, where: str, node: ast.Call) -> int:
        name, given = called(node), arguments(node)
        if name in NO_VALUES or (name in {"to", "type"} and any(_FLOATS.search(called(each)) for each in given)):
            return 0
        if name == "bitwise_and" and any(_is_small(each) for each in given):
            return 0
        levels = [self.level(where, each) for each in given]
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            return min(self._returned.get(node.func.id, 0), max(levels, default=0))
        owner = self.level(where, node.func.value) if isinstance(node.func, ast.Attribute) else 0
        most = max(owner, *levels, 0)
        return most if name in KEEPING else min(MADE, most)

    def _bind(self, where: str, node: ast.AST) -> None:
        """Note what a statement gives a name to."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._give(where, target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            self._give(where, node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._give_each(where, node.target, node.iter)
        elif isinstance(node, ast.Return):
            self._returned[where] = max(self._returned.get(where, 0), self.level(where, node.value))
        elif isinstance(node, ast.Call):
            self._pass(where, node)

    def _give(self, where: str, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            each_own = len(parts) == len(target.elts)
            for i, each in enumerate(target.elts):
                self._give(where, each, parts[i] if each_own else value)
            return
        self._mark(where, target, self.level(where, value))
        owner = self.input_of(where, value)
        if isinstance(target, ast.Name) and owner:
            self._aliases.setdefault((where, target.id), owner)

    def _give_each(self, where: str, target: ast.expr, values: ast.expr) -> None:
        """Note the names of a loop: those of `enumerate` and of `zip` have a value of their own each."""
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, values)]
        if isinstance(values, ast.Call) and isinstance(target, ast.Tuple) and values.args:
            if called(values) == "enumerate":
                self._give_each(where, target.elts[-1], values.args[0])
                return
            if called(values) == "zip":
                pairs = list(zip(target.elts, values.args, strict=False))
        for each, value in pairs:
            for name in ast.walk(each):
                self._mark(where, name, self.level(where, value))

    def _pass(self, where: str, node: ast.Call) -> None:
        """Note what the parameters of a function are given, and what is written into a tensor."""
        if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            self._mark(where, node.func.value, max((self.level(where, each) for each in node.args), default=0))
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            name = node.func.id
            pairs = [*zip(signature(self.functions[name]).positional, node.args, strict=False)]
            pairs += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
            for parameter, value in pairs:
                self._mark(name, ast.Name(parameter), self.level(where, value))

    def _mark(self, where: str, target: ast.AST, level: int) -> None:
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        if level and isinstance(target, ast.Name):
            self._values[where, target.id] = max(self._values.get((where, target.id), 0), level)


def called(node: ast.AST) -> str:
    """Return the last part of a name: of a call, that of its function."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def arguments(node: ast.Call) -> list[ast.expr]:
    """Return what a call is given, by place and by name."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _is_small(node: ast.expr) -> bool:
    value = constant(node)
    return isinstance(value, int) and 0 <= value <= _SMALL
