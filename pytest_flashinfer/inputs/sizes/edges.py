"""A finite list of cases, the most telling and smallest first: what is tried before anything random."""

from __future__ import annotations

import ast
from itertools import chain, islice, repeat, zip_longest
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.floats.scores import rising_cases
from pytest_flashinfer.inputs.recipe import Layout, Recipe, Scalar
from pytest_flashinfer.inputs.scalars.usual_values import caps
from pytest_flashinfer.inputs.seeds import derived
from pytest_flashinfer.inputs.sizes.as_constants import crossed, square
from pytest_flashinfer.inputs.sizes.family_edges import mixed_first, other_families, spoken_of, telling_families
from pytest_flashinfer.inputs.sizes.grid import Grid, grid_of
from pytest_flashinfer.inputs.sizes.long_cases import (
    MOST_ROOM,
    ROOM,
    Wish,
    drawn_lengths,
    early_wishes,
    largest_wishes,
    late_wishes,
    odd_wishes,
    order,
)
from pytest_flashinfer.inputs.sizes.random_sizes import between, early_sizes, later_sizes
from pytest_flashinfer.inputs.sizes.several_axes import several_wishes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.sizes.long_cases import Lengths
    from pytest_flashinfer.inputs.sizes.random_sizes import Range

Case = tuple[dict[str, int], Recipe]
_EDGES: Final = 88
_LAST: Final = 2000  # sizes from here on come last: many small cases tell more than one that takes as long
_KEPT: Final = 8  # one in so many cases may be one of the largest
_EARLY: Final = 2  # families that tell most at larger sizes, before most else
_CROSSED: Final = 3  # free axes as long as a constant one of the same output, as early
_PADDED: Final = 7  # rows of each sequence where there are as many as all have tokens
_SQUARE_AFTER: Final = 2  # rounds of small cases
_SEVERAL_AFTER: Final = 1
_LONG_AFTER: Final = 13
_PLAIN: Final = 12  # cases whose scalars are the usual ones
_UNUSUAL: Final = 0.5  # how often a switch is not the usual one in those that follow; other scalars half as often
_QUERIES: Final = (1, 5)  # of a single sequence that has more keys
_KEYS: Final = 13
_ALONE: Final = 5  # single sequences whose length is none of the sizes, and so not the same each time
_BY_SIZE: Final = frozenset({"large", "opposed", "far_below", "negative"})


def edge_cases(  # noqa: PLR0913 - all but one have defaults
    definition: Definition, listed: Sequence[Mapping[str, Scalar]] = (), max_elements: int = 0, *,
    layouts: Sequence[Layout] = ("contiguous",), limit: int = _EDGES, seed: int = 0,
) -> list[Case]:  # fmt: skip
    """Return up to `limit` cases in the order in which they should be tried.

    Of another `seed` contents differ, and which family of them comes at which size and with which index tensors; so do
    many of the sizes.

    `listed` are the sizes and scalars of the definition's workloads, `max_elements` bounds the elements of all tensors
    of a case. Raises Unsatisfiable where no sizes satisfy the constraints.
    """
    grid = grid_of(definition, listed, max_elements)
    grid.settled(grid.base)  # says at once where nothing can be satisfied
    cases: list[Case] = []
    rng = Random(f"{seed}/edges")  # noqa: S311 - not for secrets
    largest = list(islice(largest_wishes(grid, rng), limit // _KEPT))
    past = list(islice(_past_listed(grid), limit // _KEPT))
    least, lengths = limit - len(largest) - len(past), drawn_lengths(rng)
    telling = telling_families(grid, rng)
    _add(cases, grid, _first(grid, layouts, rng), seed, least)
    _add(cases, grid, early_wishes(grid, lengths, rng), seed, least, ROOM)
    early = chain(islice(crossed(grid), _CROSSED), _as_many(grid), _empty(grid), islice(telling, _EARLY))
    _add(cases, grid, chain(early, _wishes(grid, rng, telling, lengths)), seed, least)
    _add(cases, grid, past, seed, limit - len(largest))
    _add(cases, grid, largest, seed, limit, MOST_ROOM)
    long = [name for name in grid.contract.free if name not in grid.pools]  # to point at more is no more work
    return sorted(cases, key=lambda case: any(case[0].get(name, 0) >= _LAST for name in long))


def _add(  # noqa: PLR0913, PLR0917 - all but one are the caller's own
    cases: list[Case], grid: Grid, wishes: Iterable[Wish], seed: int, limit: int, room: int = 0
) -> None:
    """Add the cases that wishes lead to, if they are new, until there are `limit`."""
    for wish, changes in wishes:
        if len(cases) >= limit:
            break
        scalars = changes.get("scalars", _mixed(grid, len(cases), changes.get("family")))
        mixed = {**changes, "scalars": {**grid.usual, **scalars}}
        case = _case(grid, wish, mixed, derived(seed, f"case {len(cases)}"), room)
        if case is not None and not any(case[0] == have[0] and _same(case[1], have[1]) for have in cases):
            cases.append(case)


def _case(grid: Grid, wish: Mapping[str, int], changes: Mapping[str, Any], seed: int, room: int) -> Case | None:
    try:
        axes = grid.settled(wish)
    except InputsError:
        return None
    recipe = Recipe(**{"seed": seed, "structure": grid.structures[0], **changes})
    return (axes, recipe) if grid.fits(axes, room) else None


def _mixed(grid: Grid, number: int, family: str | None) -> dict[str, Scalar]:
    """Return values of scalars for a case: after the first ones many are not the usual, in all combinations.

    Those that cap what is large stay the usual ones in families that tell something by large values.
    """
    rng = Random(number)  # noqa: S311 - not for secrets
    drawn = {name: (rng.random(), rng.choice(values)) for name, values in grid.scalars.items()}
    odds = 0.0 if number < _PLAIN else _UNUSUAL
    return {name: value for name, (chance, value) in drawn.items() if chance < odds / (1 + isinstance(value, float))
            and not (family in _BY_SIZE and caps(name))}  # fmt: skip


def _same(one: Recipe, other: Recipe) -> bool:
    return {**one.to_json(), "seed": 0} == {**other.to_json(), "seed": 0} and one.family == "normal"


def _first(grid: Grid, layouts: Sequence[Layout], rng: Random) -> Iterator[Wish]:
    """Yield the cases that tell most, for where calls are slow: nothing else is tried there."""
    base, other = grid.base, [layout for layout in layouts if layout != "contiguous"]
    yield base, {}
    yield grid.ones, {}
    yield from ((base, {"layout": layout}) for layout in other)
    single = _one_sequence(grid)
    yield from islice(single, 1)
    yield from mixed_first(grid, rng)
    yield from ((base, {"family": name}) for name in spoken_of(grid))
    yield from islice(single, 1)
    yield from ((grid.scaled(name, 0), {}) for name in order(grid)[:1] if grid.lowest(name) == 0)
    yield from islice(_scalars(grid), 1)


def _wishes(grid: Grid, rng: Random, telling: Iterator[Wish], lengths: Lengths) -> Iterator[Wish]:
    """Yield cases in rounds: every structure and family, scalars and sizes, then other sizes."""
    single = islice(_one_sequence(grid), 2, None)
    long = chain(repeat(None, _LONG_AFTER), late_wishes(grid, lengths))
    values = chain(rising_cases(grid), other_families(grid, rng))
    sizes = _sizes(grid, early_sizes(), rng)
    small = _structures(grid), _scalars(grid), values, sizes, telling, _absent(grid), single
    alike = chain(repeat(None, _SQUARE_AFTER), _sizes(grid, square(grid), rng))
    several = chain(repeat(None, _SEVERAL_AFTER), several_wishes(grid, rng))
    yield from _woven(*small, odd_wishes(grid), alike, several, long)
    yield from _sizes(grid, later_sizes(rng), rng)


def _one_sequence(grid: Grid) -> Iterator[Wish]:
    """Yield one sequence with more keys than queries, of which there are one or several, as in a step of decoding."""
    batch = names_of(grid.plan.batch) & grid.base.keys() if grid.plan.batch is not None else ()
    one = {**grid.base, **(grid.sequences(1) or dict.fromkeys(batch, 1))}
    if one == grid.base:
        return
    page = size(grid.plan.page_size, {**grid.contract.constants, **grid.base}) or 1
    keys = {name: 1 + -(-_KEYS // page) if what == "pages" else _KEYS for name, what in grid.totals.items()}
    queries = [name for name, what in grid.totals.items() if what == "q"]
    for count in _QUERIES if queries else _QUERIES[:1]:
        yield {**one, **keys, **dict.fromkeys(queries, count)}, {}
    if grid.plan.lengths and not keys:
        yield from ((one, {"structure": name}) for name in grid.structures[1:_ALONE])


def _woven(*rounds: Iterator[Wish | None]) -> Iterator[Wish]:
    return (wish for wish in chain.from_iterable(zip_longest(*rounds)) if wish is not None)


def _structures(grid: Grid) -> Iterator[Wish]:
    yield from ((grid.base, {"structure": name}) for name in grid.structures[1:])
    if "all_padded" in grid.structures:  # a single row is padded in no other structure
        yield dict.fromkeys(grid.base, 1), {"structure": "all_padded"}


def _scalars(grid: Grid) -> Iterator[Wish]:
    for name, values in grid.scalars.items():
        for value in values:
            yield grid.base, {"scalars": {name: value}}


def _absent(grid: Grid) -> Iterator[Wish]:
    if grid.optional:
        yield grid.base, {"absent": frozenset(grid.optional)}
        yield grid.ones, {"absent": frozenset(grid.optional)}  # a norm of one value is 0, unless there is a bias
    if len(grid.optional) > 1:
        yield from ((grid.base, {"absent": frozenset({name})}) for name in grid.optional)


def _sizes(grid: Grid, sizes: Sequence[int | Range], rng: Random) -> Iterator[Wish]:
    """Yield one size after the other for each axis; where sequences are few, one of them takes the whole total.

    Of a range each axis has a size of its own.
    """
    for number, each in enumerate((*sizes[:1], 0, *sizes[1:])):
        for name in order(grid):
            value = each if isinstance(each, int) else between(rng, *each)
            if value < grid.lowest(name):
                continue
            long = "one_long" in grid.structures and name in grid.totals and number % 2
            yield grid.scaled(name, value), {"structure": "one_long"} if long else {}


def _empty(grid: Grid) -> Iterator[Wish]:
    yield from ((grid.scaled(name, 0), {}) for name in order(grid)[1:] if grid.lowest(name) == 0)


def _as_many(grid: Grid) -> Iterator[Wish]:
    """Yield cases with as many tokens as sequences, as keys, or as a padded output has rows, but not so in each.

    A kernel may take the first for a step of decoding, the next for attention to the own sequence, the last for a batch
    without padding.
    """
    sizes = grid.settled(grid.base)
    names = [name for name, what in grid.totals.items() if what != "pages" and name in grid.contract.free][:1]
    count = size(grid.plan.batch, sizes)
    yield from (({**grid.base, name: count}, {}) for name in names if count)
    kinds = {what: name for name, what in grid.totals.items()}
    if {"q", "kv"} <= kinds.keys() and "q_longer" in grid.structures:
        yield {**grid.base, kinds["kv"]: sizes[kinds["q"]]}, {"structure": "q_longer"}
    for trees in filter(None, grid.contract.output_dims.values()):
        axes = [tree.id for tree in trees[:2] if isinstance(tree, ast.Name) and tree.id in grid.contract.free]
        if len(axes) > 1 and not set(axes) & set(names):
            padded = {**grid.base, axes[1]: _PADDED}
            yield from (({**padded, name: _PADDED * sizes[axes[0]]}, {}) for name in names)
            return


def _past_listed(grid: Grid) -> Iterator[Wish]:
    """Yield sizes that are one past a listed one, the largest of them first, for each axis."""
    free = set(grid.contract.free) & set(grid.contract.axis_names)
    seen = {n for sizes in grid.listed for name, n in sizes.items() if name in free and isinstance(n, int)}
    for n in sorted(seen, reverse=True)[:4]:
        yield from ((grid.scaled(name, n + 1), {}) for name in order(grid) if n + 1 >= grid.lowest(name))
