"""Hypothesis strategies over axes and recipes: every draw satisfies the constraints, none is filtered away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from pytest_flashinfer.inputs.edges import Case, edge_cases
from pytest_flashinfer.inputs.grid import Grid, grid_of
from pytest_flashinfer.inputs.recipe import Layout, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition

__all__ = ["Case", "axes_strategy", "below_strategy", "case_strategy", "edge_cases", "recipe_strategy"]
_EVERY: Final = 300  # up to here every size is drawn, beyond it steps of an eighth


def axes_strategy(
    definition: Definition, listed: Sequence[Mapping[str, int]] = (), max_elements: int = 0
) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for the sizes of all axes, within a budget of elements; it shrinks to small sizes.

    Free axes are drawn, the others follow. Raises Unsatisfiable where no sizes satisfy the constraints.
    """
    grid = grid_of(definition, listed, max_elements)
    grid.settled(grid.base)
    drawn = {name: _one_size(values) for name, values in grid.candidates.items()}
    return st.fixed_dictionaries(drawn).map(lambda wish: _fitted(grid, wish))


def _one_size(values: list[int]) -> st.SearchStrategy[int]:
    """Draw small sizes half of the time, edges the other half."""
    small = st.integers(values[0], min(values[-1], max(values[0], 20)))
    return small | st.sampled_from(values)


def _fitted(grid: Grid, wish: Mapping[str, int]) -> dict[str, int]:
    """Return settled sizes within the budget: the largest wish is halved until they are."""
    smaller = dict(wish)
    axes = grid.settled(smaller)
    while not grid.fits(axes):
        name = max(smaller, key=lambda n: smaller[n] - grid.lowest(n))
        if smaller[name] <= max(1, grid.lowest(name)):
            return grid.settled(dict.fromkeys(smaller, 1))
        smaller[name] = max(1, grid.lowest(name), smaller[name] // 2)
        axes = grid.settled(smaller)
    return axes


def recipe_strategy(
    definition: Definition, *, layouts: Sequence[Layout] = ("contiguous",)
) -> st.SearchStrategy[Recipe]:
    """Return a strategy for recipes that differ for this definition; it shrinks to plain values and structure."""
    grid = grid_of(definition)
    values = {name: st.sampled_from(choices) for name, choices in grid.scalars.items()}
    scalars: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries({}, optional=values)
    return st.builds(
        Recipe,
        seed=st.integers(0, (1 << 31) - 1),
        family=st.just(grid.families[0]) | st.sampled_from(grid.families),
        structure=st.sampled_from(grid.structures),
        absent=st.frozensets(st.sampled_from(grid.optional)) if grid.optional else st.just(frozenset()),
        layout=st.sampled_from(tuple(layouts)),
        scalars=scalars,
    )


def case_strategy(
    definition: Definition, listed: Sequence[Mapping[str, int]] = (), max_elements: int = 0, *,
    layouts: Sequence[Layout] = ("contiguous",),
) -> st.SearchStrategy[Case]:  # fmt: skip
    """Return a strategy for whole cases: sizes and the recipe of the data. Raises Unsatisfiable."""
    return st.tuples(axes_strategy(definition, listed, max_elements), recipe_strategy(definition, layouts=layouts))


def below_strategy(definition: Definition, case: Case) -> st.SearchStrategy[Case]:
    """Return a strategy of cases no larger than `case` and no less plain: most draws keep most of its sizes.

    It is for shrinking: what fails on `case` mostly fails on its first draws, and each size shrinks on its own.
    """
    axes, recipe = case
    grid = grid_of(definition)
    free = {name: axes[name] for name in grid.contract.free if name in axes}
    sizes = st.fixed_dictionaries({name: _up_to(grid.lowest(name), have) for name, have in free.items()})
    settled = sizes.map(lambda wish: grid.settled(wish, tuple(wish)))
    return st.tuples(settled, _plainer(grid, recipe))


def _up_to(low: int, high: int) -> st.SearchStrategy[int]:
    """Draw a size between `low` and `high`: three times out of four `high`."""
    values = list(range(low, min(high, _EVERY) + 1))
    while values[-1] < high:
        values.append(min(high, values[-1] + max(1, values[-1] // 8)))
    last = len(values) - 1
    return st.integers(0, 4 * len(values)).map(lambda index: values[min(index, last)])


def _plainer(grid: Grid, recipe: Recipe) -> st.SearchStrategy[Recipe]:
    def keep(plain: Any, have: Any) -> st.SearchStrategy[Any]:
        return st.just(have) if plain == have else st.sampled_from((plain, have, have, have))

    return st.builds(
        Recipe,
        seed=st.just(recipe.seed),
        family=keep(grid.families[0], recipe.family),
        structure=keep(grid.structures[0], recipe.structure),
        absent=keep(frozenset(), recipe.absent),
        layout=keep("contiguous", recipe.layout),
        scalars=keep({}, recipe.scalars),
    )
