"""Hypothesis strategies over axes and recipes: every draw satisfies the constraints, none is filtered away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from pytest_flashinfer.inputs.recipe import Layout, Recipe, Scalar
from pytest_flashinfer.inputs.seeds import derived
from pytest_flashinfer.inputs.sizes.edges import Case, edge_cases
from pytest_flashinfer.inputs.sizes.grid import Grid, grid_of
from pytest_flashinfer.inputs.sizes.long_cases import fits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition

__all__ = ["Case", "axes_strategy", "case_strategy", "edge_cases", "recipe_strategy"]

_NUMBERS = (1 << 31) - 1
_SMALL = 20  # sizes up to which any is as likely
_DIGITS = (64, 2, 64, 3)  # all, or few: kernels have branches for whole numbers of tiles


def axes_strategy(
    definition: Definition, listed: Sequence[Mapping[str, Scalar]] = (), max_elements: int = 0
) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for the sizes of all axes, within a budget of elements; it shrinks to small sizes.

    Free axes are drawn, the others follow. Raises Unsatisfiable where no sizes satisfy the constraints.
    """
    grid = grid_of(definition, listed, max_elements)
    grid.settled(grid.base)
    drawn = {name: _one_size(values) for name, values in grid.candidates.items()}
    return st.fixed_dictionaries(drawn).map(lambda wish: _fitted(grid, wish))


def _one_size(values: list[int]) -> st.SearchStrategy[int]:
    """Draw small sizes, edges, and any others, as likely to lie between one number and its double as another."""
    low, most = values[0], values[-1]
    small = st.integers(low, min(most, max(low, _SMALL)))
    if most <= _SMALL:
        return small | st.sampled_from(values)
    octaves = st.integers(_SMALL.bit_length(), most.bit_length())
    sizes = octaves.flatmap(lambda bits: st.integers(1 << bits - 1, min(most, (1 << bits) - 1)))
    others = st.builds(_rounded, sizes, st.sampled_from(_DIGITS))
    return small | st.sampled_from(values) | others


def _rounded(size: int, digits: int) -> int:
    """Return a size of which so many binary digits are left, and the others are 0."""
    rest = max(0, size.bit_length() - digits)
    return size >> rest << rest


def _fitted(grid: Grid, wish: Mapping[str, int]) -> dict[str, int]:
    """Return settled sizes within the budget, near to a wish whose largest size is halved until there are some."""
    smaller = dict(wish)
    while not fits(grid, smaller):
        name = max(smaller, key=lambda n: smaller[n] - grid.lowest(n))
        if smaller[name] <= max(1, grid.lowest(name)):
            return grid.settled(dict.fromkeys(smaller, 1))
        smaller[name] = max(1, grid.lowest(name), smaller[name] // 2)
    return grid.settled(smaller)


def recipe_strategy(
    definition: Definition, listed: Sequence[Mapping[str, Scalar]] = (), *,
    layouts: Sequence[Layout] = ("contiguous",), seed: int = 0,
) -> st.SearchStrategy[Recipe]:  # fmt: skip
    """Return a strategy for recipes that differ for this definition; it shrinks to plain values and structure.

    `listed` are the sizes and scalars of its workloads. The recipes' seeds follow from `seed` and from what is drawn:
    numbers that hypothesis draws are often small, and could be tried.
    """
    grid = grid_of(definition, listed)
    values = {name: st.sampled_from(choices) for name, choices in grid.scalars.items()}
    scalars: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries({}, optional=values)
    return st.builds(
        Recipe,
        seed=st.integers(0, _NUMBERS).map(lambda number: derived(seed, f"drawn {number}")),
        family=st.just(grid.families[0]) | st.sampled_from(grid.families),
        structure=st.sampled_from(grid.structures),
        absent=st.frozensets(st.sampled_from(grid.optional)) if grid.optional else st.just(frozenset()),
        layout=st.sampled_from(tuple(layouts)),
        scalars=scalars.map(lambda drawn: {**grid.usual, **drawn}),
    )


def case_strategy(
    definition: Definition, listed: Sequence[Mapping[str, Scalar]] = (), max_elements: int = 0, *,
    layouts: Sequence[Layout] = ("contiguous",), seed: int = 0,
) -> st.SearchStrategy[Case]:  # fmt: skip
    """Return a strategy for whole cases: sizes and the recipe of the data. Raises Unsatisfiable."""
    sizes = axes_strategy(definition, listed, max_elements)
    return st.tuples(sizes, recipe_strategy(definition, listed, layouts=layouts, seed=seed))
