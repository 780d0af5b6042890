"""Simpler cases than a failing one, the simplest first: a greedy search over them ends at a small failure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.sizes.grid import Grid, grid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.inputs.sizes.edges import Case


def simpler(definition: Definition, axes: Mapping[str, int], recipe: Recipe) -> Iterator[Case]:
    """Yield cases with fewer elements, or as many but a plainer recipe; each has valid data.

    Whoever finds one that still fails starts again from it; the search ends, for every case is simpler than `axes`
    and `recipe`.
    """
    grid = grid_of(definition)
    yield from ((dict(axes), plainer) for plainer in _plainer(grid, recipe))
    seen = {_key(axes)}
    for wish, pinned in _smaller(grid, axes):
        try:
            smaller = grid.settled(wish, pinned)
        except InputsError:
            continue
        if _key(smaller) not in seen and _weight(grid, smaller) < _weight(grid, axes):
            seen.add(_key(smaller))
            yield smaller, recipe


def _plainer(grid: Grid, recipe: Recipe) -> Iterator[Recipe]:
    if recipe.layout != "contiguous":
        yield replace(recipe, layout="contiguous")
    if recipe.scalars:
        yield replace(recipe, scalars={})
        if len(recipe.scalars) > 1:
            yield from (replace(recipe, scalars={n: v for n, v in recipe.scalars.items() if n != name})
                        for name in recipe.scalars)  # fmt: skip
    if recipe.absent:
        yield replace(recipe, absent=frozenset())
    if recipe.family in grid.families[1:]:
        yield replace(recipe, family=grid.families[0])
    if recipe.structure in grid.structures[1:]:
        plain = grid.structures[: grid.structures.index(recipe.structure)]
        yield from (replace(recipe, structure=name) for name in plain[:2])


def _smaller(grid: Grid, axes: Mapping[str, int]) -> Iterator[tuple[dict[str, int], tuple[str, ...]]]:
    """Yield wishes: all axes at once, then each to the least it can be, then each by large steps and by small ones.

    Time may end this: an axis that does not matter is better out of the way before another is made smaller with care.
    """
    free = {name: axes[name] for name in grid.contract.free if name in axes}
    low = {name: grid.lowest(name) for name in free}
    for value in (1, 2, 3, 5):
        yield {name: max(low[name], min(n, value)) for name, n in free.items()}, ()
    yield {name: max(low[name], n // 2) for name, n in free.items()}, ()
    for steps in _STEPS:
        for name in sorted(free, key=lambda n: -free[n]):
            loose = {n: v for n, v in free.items() if n not in grid.pools or n == name}
            for value in sorted({n for n in steps(low[name], free[name]) if low[name] <= n < free[name]}):
                yield {**loose, name: value}, (name,)
                yield {**free, name: value}, (name,)


_STEPS: tuple[Callable[[int, int], tuple[int, ...]], ...] = (
    lambda low, _: (low,),
    lambda _, have: (1, 2, 3, have // 4, have // 2),
    lambda _, have: (have - have // 4, have - have // 8, have - 2, have - 1),
)


def _key(axes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(axes.items()))


def _weight(grid: Grid, axes: Mapping[str, int]) -> tuple[int, int]:
    return sum(axes[name] for name in grid.contract.free if name in axes), grid.elements(axes)
