"""Sizes at which a tensor has more than 2**31 elements: beyond them offsets of 32 bits overflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.dtypes import is_packed, torch_dtype
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.grid import Grid, grid_of

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition

_OFFSETS: Final = 1 << 31
_ANY: Final = 1 << 62  # elements: what there is room for is the caller's to say
_POOL: Final = 1.25  # of the least size, where ids point into an axis: a fifth of them then points beyond
_WORK: Final = 16  # bytes an element for what a reference makes on its way: four copies in float32


@dataclass(frozen=True)
class Crossing:
    """The case in which `axis` is just large enough for a tensor to have more than 2**31 elements.

    `nbytes` is about how much memory the device must have, so that a call can be made and judged.
    """

    axis: str
    axes: dict[str, int]
    recipe: Recipe
    nbytes: int


def crossings(definition: Definition) -> list[Crossing]:
    """Return a case for each free axis that can grow so far, the smallest first."""
    grid = grid_of(definition, (), _ANY)
    found: list[Crossing] = []
    for name in grid.contract.free:
        least = _least(grid, name)
        if name in grid.counts and least >= _OFFSETS:
            continue  # as many sequences as that: only the pointers to them would cross
        value = int(least * _POOL) if name in grid.pools else least
        try:
            axes = grid.settled({**grid.base, name: value})
        except InputsError:
            continue
        if grid.largest(axes) > _OFFSETS and all(axes != other.axes for other in found):
            recipe = Recipe(len(found), structure=grid.structures[0])
            found.append(Crossing(name, axes, recipe, _needed(definition, grid, axes)))
    return sorted(found, key=lambda each: each.nbytes)


def _least(grid: Grid, name: str) -> int:
    """Return the least size at which some tensor crosses; tensors grow with the axis, or 2**31 is returned."""
    low, high = grid.lowest(name), _OFFSETS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _largest(grid, name, middle) > _OFFSETS else (middle + 1, high)
    return low


def _largest(grid: Grid, name: str, value: int) -> int:
    try:
        return grid.largest(grid.settled({**grid.base, name: value}))
    except InputsError:
        return 0


def _needed(definition: Definition, grid: Grid, axes: dict[str, int]) -> int:
    """Return an estimate in bytes for the larger of two: while the solution runs, and while the reference does.

    Inputs are there three times at most, outputs four times; a bound and expected values stand beside outputs.
    """
    specs, total = {**definition.inputs, **definition.outputs}, 0
    for name, elements in grid.each(axes).items():
        spec = specs.get(name)
        if spec is None or not spec.shape:
            continue
        dtype = torch_dtype(spec.dtype)
        stored = elements // 2 if is_packed(spec.dtype) else elements
        total += stored * dtype.itemsize * (4 if name in definition.outputs else 3) + elements * _WORK
        if name in definition.outputs:
            total += elements * (1 + 3 * (8 if dtype.itemsize >= 4 else 4))  # noqa: PLR2004 - float32 and wider
    return total
