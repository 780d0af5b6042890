"""Sizes of which one is long and the others small: bounds on the length of a sequence, or of a loop, show there."""

from __future__ import annotations

import ast
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.roles.literals import literals
from pytest_flashinfer.inputs.sizes.random_sizes import odd, past

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.inputs.sizes.grid import Grid
    from pytest_flashinfer.inputs.sizes.random_sizes import Range

Wish = tuple[dict[str, int], dict[str, Any]]  # sizes, and what differs from the plain recipe
Lengths = tuple[tuple[int, int], ...]  # with the rows that go with them, as queries with keys
# Where these are drawn from: well past the bounds that kernels fix, for one element of many that is left out changes
# little, and odd, for whole numbers of tiles hide tails. First those that tell most.
_LENGTHS: Final[tuple[tuple[Range, Range], ...]] = (
    ((137, 167), (1, 1)), ((265, 355), (33, 41)), ((1063, 1421), (1, 1)), ((67, 77), (17, 23)), ((531, 709), (33, 41)),
    ((137, 167), (65, 77)), ((265, 355), (1, 1)), ((531, 709), (1, 1)),
)  # fmt: skip
_ROWS: Final = (9, 4, 2)  # of inner axes of dense tensors where several rows are wanted; else the last
_AT_ONCE: Final = ((33, 39), (17, 21))
_PAST: Final = 6  # more sequences than that: some have nothing to do
_LINES: Final = 3
_EARLY: Final = 1
ROOM: Final = 1 << 20  # elements that early cases may have where the budget is less
_EARLY_OF_NUMBERS: Final = 2
_LARGEST: Final = (4096, 2048, 1024, 512, 256)  # bounds to pass
_LESS: Final = (127, 61, 31)  # where memory is short
_FAR: Final = (4096, 2048, 1024)
_BEYOND_16_BITS: Final = (65536, 32768)  # of what ids or columns may number
_LARGEST_STRUCTURES: Final = ("one_long", "few_ids")  # the first that there is
MOST_ROOM: Final = 1 << 21  # elements that the largest cases may have where the budget is less


def drawn_lengths(rng: Random) -> Lengths:
    """Return lengths, with the rows that go with them, for all long cases of a run."""
    drawn = {each: odd(rng, *each) for each in dict.fromkeys(chain.from_iterable(_LENGTHS))}
    return tuple((drawn[lengths], drawn[rows]) for lengths, rows in _LENGTHS)


def early_wishes(grid: Grid, lengths: Lengths, rng: Random) -> Iterator[Wish]:
    """Yield the few that are to come early, which may have `ROOM` elements."""
    long = long_wishes(grid, lengths, ROOM)
    yield from islice(long, 1)
    yield from _at_once(grid, rng)
    yield from islice(long, _EARLY)
    yield from islice(_far_ids(grid, rng), _EARLY)
    yield from islice(odd_wishes(grid), _EARLY_OF_NUMBERS)


def late_wishes(grid: Grid, lengths: Lengths) -> Iterator[Wish]:
    """Yield the others, for where calls are fast: a reference may take long for a long sequence."""
    early = [*islice(long_wishes(grid, lengths, ROOM), 1 + _EARLY)]
    yield from (each for each in long_wishes(grid, lengths) if each not in early)


def fits(grid: Grid, wish: Mapping[str, int], room: int = 0) -> bool:
    """Say whether there are sizes near to a wish that stay within the budget, or within `room`, if that is more."""
    try:
        return grid.fits(grid.settled(wish), room)
    except InputsError:
        return False


def lines(grid: Grid) -> dict[str, int]:
    """Return the free axes that sequences, or sums, go along, with how many elements of them each entry stands for.

    They are totals of keys, else of tokens; else the widths of tables; else what inputs have and no output has, and
    where there is none either, no axis.
    """
    page = size(grid.plan.page_size, {**grid.contract.constants, **grid.base}) or 1
    totals = [name for name, what in grid.totals.items() if what != "q"] or list(grid.totals)
    if totals:
        return {name: page if grid.totals[name] == "pages" else 1 for name in totals}
    tables = [trees[-1] for name in grid.plan.of("page_table") if (trees := grid.contract.dims[name])]
    widths = {tree.id: page for tree in tables if isinstance(tree, ast.Name) and tree.id in grid.contract.free}
    return widths or dict.fromkeys(_summed(grid), 1)


def _summed(grid: Grid) -> list[str]:
    """Return the axes that neither outputs have nor what their axes follow from, as heads follow from groups."""
    shown = {n for trees in grid.contract.output_dims.values() for tree in trees or () for n in names_of(tree)}
    derived = grid.contract.derived
    shown = shown.union(*(derived[name].names for name in shown if name in derived))
    return [name for name in _work(grid) if name not in shown and name in grid.contract.input_axes]


def _work(grid: Grid) -> list[str]:
    sizes = [name for name in grid.contract.free if name in grid.contract.axis_names]  # and not scalars
    return [name for name in sizes if name not in grid.pools and name not in grid.counts]


def length(grid: Grid, axes: Mapping[str, int], recipe: Recipe) -> int:
    """Return how long the longest sequence of a case is, as far as its sizes tell; without any, its largest size."""
    along = lines(grid)
    if not along:
        return max((axes[name] for name in grid.contract.free if name in axes and name not in grid.pools), default=0)
    count = 1 if recipe.structure == "one_long" or not grid.totals else size(grid.plan.batch, axes) or 1
    return max(-(-axes.get(name, 0) * each // max(1, count)) for name, each in along.items())


def long_wishes(grid: Grid, lengths: Lengths, room: int = 0) -> Iterator[Wish]:
    """Yield one axis after the other that is long; where there are sequences, there is one, or two of which one is."""
    along = lines(grid)
    if _has_sequences(grid, along):
        for number, (value, rows) in enumerate(lengths):
            yield from _sequence(grid, along, value, rows, 1 + number % 2, room)
        return
    others = sorted((name for name in _work(grid) if name not in along), key=lambda name: -grid.lowest(name))[:_LINES]
    for value, rows in lengths:
        for name in along or others:
            wishes = ({**_few(grid, few), name: value} for few in _ROWS[-1 if rows == 1 else 0 :])
            yield from _fitting(grid, wishes, room)
    if along:
        short = _few(grid, _ROWS[-1])
        yield from (wish for name in others for wish in _fitting(grid, [{**short, name: lengths[0][0]}]))


def _has_sequences(grid: Grid, along: Mapping[str, int]) -> bool:
    return bool(grid.totals) or bool(along and grid.plan.batch is not None)


def _sequence(  # noqa: PLR0913, PLR0917 - one more than usual
    grid: Grid, along: Mapping[str, int], value: int, rows: int, count: int, room: int = 0
) -> Iterator[Wish]:
    """Yield one sequence that is so long and has so many queries, where there are both; `count` has to be 1 or 2."""
    small = {**grid.ones, **{name: grid.base[name] for name in grid.pools}, **grid.sequences(count)}
    queries = {name: rows for name, what in grid.totals.items() if what == "q" and name not in along}
    keys = {name: -(-value // each) for name, each in along.items()}
    changes = {"structure": "one_long"} if "one_long" in grid.structures and (count > 1 or not grid.totals) else {}
    yield from ((wish, changes) for wish, _ in _fitting(grid, [{**small, **queries, **keys}], room))


def _few(grid: Grid, few: int) -> dict[str, int]:
    """Return sizes of which the inner ones are `few`."""
    inner = [name for name in _work(grid) if grid.lowest(name)]
    return {**grid.ones, **dict.fromkeys(inner, few), **{name: grid.base[name] for name in grid.pools}}


def _fitting(grid: Grid, wishes: Iterable[dict[str, int]], room: int = 0) -> Iterator[Wish]:
    """Yield the first wish that stays within the budget, if one does."""
    yield from islice(((wish, {}) for wish in wishes if fits(grid, wish, room)), 1)


def _at_once(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield a case in which all axes pass the size of small tiles at once: of three or more not those of batches."""
    names = [name for name in _work(grid) if name not in grid.totals]
    inner = [name for name in names if grid.lowest(name)]
    names = inner if len(inner) > 1 else names
    if len(names) + len(grid.totals) + bool(grid.counts) > 1:
        yield from _fitting(grid, (
            {**_few(grid, _ROWS[-1]), **dict.fromkeys(names, value), **grid.sequences(value + _PAST),
             **dict.fromkeys(grid.totals, 2 * (value + _PAST))}
            for value in [odd(rng, *each) for each in _AT_ONCE]
        ), ROOM)  # fmt: skip


def _far_ids(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield a case with much to point at: offsets in 16 bits wrap, and tables of a fixed size end before."""
    for name in order(grid):
        if name in grid.pools:
            yield from _fitting(grid, ({**grid.base, name: value} for value in past(rng, _FAR)), ROOM)


def odd_wishes(grid: Grid) -> Iterator[Wish]:
    """Yield lengths around whole numbers of the reference, and twice them, with one query and with half as many."""
    along = lines(grid)
    for n in literals(grid.contract):
        for value, rows in ((2 * n, 1), (n + 1, n // 2), (n, 1), (2 * n + 1, n // 2), (n - 1, 1), (n, n // 2)):
            if _has_sequences(grid, along):
                yield from _sequence(grid, along, value, rows, 1)
            else:
                axes = [*along] or [name for name in _work(grid) if grid.lowest(name)] or _work(grid)
                yield from (w for name in axes[:1] for w in _fitting(grid, [{**_few(grid, _ROWS[-1]), name: value}]))


def largest_wishes(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield one large size for each axis, all else as small as can be: bounds of single blocks show there.

    But where there are ids there are several, and they have several things to point at.
    """
    small = {**grid.ones, **{name: grid.base[name] for name in grid.pools}}
    told = [name for name in _LARGEST_STRUCTURES if name in grid.structures]
    changes = {"structure": told[0]} if told else {}
    of_sizes = [(name, (*past(rng, _LARGEST), *_LESS)) for name in order(grid) if name not in grid.pools]
    of_ids = [(name, past(rng, _BEYOND_16_BITS)) for name in order(grid) if name in grid.pools | grid.rows]
    for name, sizes in (*of_sizes, *of_ids):
        few = grid.base if name in grid.pools else {**small, **(grid.sequences(2) if name in grid.totals else {})}
        fitting = (wish for value in sizes if fits(grid, wish := {**few, name: value}, MOST_ROOM))
        yield from ((wish, changes) for wish in islice(fitting, 1))


def order(grid: Grid) -> list[str]:
    """Return the free axes, those first that say how much work there is."""

    def rank(name: str) -> tuple[bool, bool]:
        return (name in grid.pools, name not in grid.counts and name not in grid.totals and grid.lowest(name) > 0)

    return sorted(grid.contract.free, key=rank)
