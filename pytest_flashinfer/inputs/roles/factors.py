"""Floats that a reference multiplies a product of integers with: they are scales, whatever they are called."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.trees import as_read, constant
from pytest_flashinfer.inputs.dtypes import is_float, is_integer
from pytest_flashinfer.inputs.roles.dataflow import called
from pytest_flashinfer.inputs.roles.optional import entry_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.contract import Contract

    _Names = frozenset[str]

_PRODUCTS: Final = frozenset({"matmul", "mm", "bmm", "_int_mm", "einsum", "linear"})
_CASTS: Final = frozenset({"to", "float", "double", "half", "bfloat16", "int", "long", "contiguous"})


@lru_cache(maxsize=64)
def factors(contract: Contract) -> Mapping[str, str]:
    """Return the float inputs of one value for each row or column that scale a product of two integer inputs.

    Each with the right one of the two, whose products are summed: such a sum is large, and has to fit 16 bits.
    """
    function = entry_of(contract.definition)
    if function is None:
        return {}
    reading, found = _Reading(contract), dict[str, str]()
    for node in as_read(function):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mult):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            for product, other in ((left, right), (right, left)):
                weights = reading.product(product)
                for name in sorted(reading.origins(other) & reading.vectors) if weights else ():
                    found[name] = min(weights)
        reading.bind(node)
    return found


class _Reading:
    """What names stand for, from one statement to the next: the inputs that they are made of, and products of them."""

    def __init__(self, contract: Contract) -> None:
        shapes = {name: trees for name, trees in contract.dims.items() if trees}
        self._whole = {n for n, trees in shapes.items() if len(trees) > 1 and is_integer(contract.dtype(n))}
        self.vectors = {name for name, trees in shapes.items() if is_float(contract.dtype(name)) and
                        sum(constant(tree) != 1 for tree in trees) == 1}  # fmt: skip
        self._origins: dict[str, _Names] = {name: frozenset({name}) for name in contract.dims}
        self._products: dict[str, _Names] = {}

    def origins(self, node: ast.AST) -> _Names:
        """Return the inputs that an expression mentions, by whichever name."""
        names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        return frozenset().union(*(self._origins.get(name, frozenset()) for name in names))

    def product(self, node: ast.expr) -> _Names:
        """Return the integer inputs at the right of a product of integers, scaled or not; none for anything else."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
            node = node.func.value
        if isinstance(node, ast.Name):
            return self._products.get(node.id, frozenset())
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.product(node.left) or self.product(node.right)
        left, right = self._operands(node)
        both = self.origins(left) if left and right else frozenset()
        weights = self.origins(right) if left and right else frozenset()
        return weights if both and weights and both | weights <= self._whole else frozenset()

    @staticmethod
    def _operands(node: ast.expr) -> tuple[ast.expr | None, ast.expr | None]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return node.left, node.right
        if isinstance(node, ast.Call) and called(node) in _PRODUCTS and len(node.args) > 1:
            return node.args[-2], node.args[-1]
        return None, None

    def bind(self, node: ast.AST) -> None:
        """Note what a statement gives a name to."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._origins[target.id] = self.origins(node.value)
                    self._products[target.id] = self.product(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            self._origins[name] = self.origins(node.target) | self.origins(node.value)
            self._products[name] = self.product(node.target) or self.product(node.value)
