"""Axes that are as long as constant ones, where a kernel that tells axes apart by their sizes takes the wrong one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.sizes.grid import MORE_SIZES, SIZES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.sizes.grid import Grid
    from pytest_flashinfer.inputs.sizes.long_cases import Wish

_SMALL_CONSTANT: Final = 512


def square(grid: Grid) -> list[int]:
    """Return sizes that constant axes have: a kernel that takes one axis for the other is only shown up elsewhere."""
    sizes = {n for n in grid.contract.constants.values() if 1 < n <= _SMALL_CONSTANT}
    return sorted(sizes - {*SIZES, *MORE_SIZES})[-3:]


def crossed(grid: Grid) -> Iterator[Wish]:
    """Yield cases in which an axis is as long as a constant one of the same tensor: outputs first, and of few axes.

    A kernel that goes by sizes to tell one from the other has the tensor transposed there and nowhere else.
    """
    constants = grid.contract.constants
    lengths: dict[tuple[str, int], None] = {}
    outputs, inputs = ([*filter(None, each.values())] for each in (grid.contract.output_dims, grid.contract.dims))
    for trees in (*sorted(outputs, key=len), *sorted(inputs, key=len)):
        names = [tree.id for tree in trees if isinstance(tree, ast.Name)]
        sizes = {constants[name] for name in names if 1 < constants.get(name, 0) <= _SMALL_CONSTANT}
        lengths.update({(name, n): None for name in names if name in grid.contract.free for n in sorted(sizes)})
    yield from ((grid.scaled(name, n), {}) for name, n in lengths)
