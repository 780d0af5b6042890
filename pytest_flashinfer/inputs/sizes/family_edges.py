"""Families of contents among the edges: which comes at which size, and with which index tensors, the seed says.

Who knew that would be right there and nowhere else.
"""

from __future__ import annotations

from itertools import chain, cycle, islice, repeat
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.floats.families import SPECIAL
from pytest_flashinfer.inputs.sizes.long_cases import Wish, fits, order
from pytest_flashinfer.inputs.sizes.random_sizes import between, odd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from pytest_flashinfer.inputs.sizes.grid import Grid

# Where calls are slow, few cases are tried: each of the first differs in several ways.
_FIRST_FAMILIES: Final = ("zero_rows", "large", "tiny", "ties", "opposed", "negative", "deep")
_FIRST: Final = 6
_FIRST_STRUCTURES: Final = ("stale_nan", "shared", "q_longer", "no_kv", "empty")
_FIRST_SIZES: Final = (3, 17, 1, 9, 33)
_FIRST_LONG: Final = (17, 33)
_TELLING: Final = ("neginf", "zero_rows", "tiny", "large", "opposed", "negative", "ties", "big_row")
_BY_CHANCE: Final = frozenset({"uneven"})  # chance says which tensors are large: one case tells little
_MORE: Final = 3  # cases of these
_MANY: Final = (65, 67, 97, 129, 131, 257)  # past the bounds of small blocks, and no whole number of them
_ODD: Final = (65, 259)  # half of the time one from here, any of which is the same
_FEWER: Final = (33, 17, 9)  # where memory is short
_ANY: Final = (2, 5, 9, 17, 33, 67, 129)
_BETWEEN: Final = (11, 126)  # half of the time
_ROWS: Final = ((259, 347), (259, 347), (523, 1093))  # elements of a row that is more than one block, or several
_NOTHING_SHOWS: Final = frozenset({"all_padded", "no_kv"})


def mixed_first(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield the families that tell most, each with another structure, a long sequence or another size; all small."""
    axes = _axes(grid)
    counts = rng.sample(_FIRST_SIZES, len(_FIRST_SIZES))
    sizes = zip(cycle(axes[:1] if grid.totals else axes), counts, strict=False)
    others = chain(
        ((grid.base, {"structure": name}) for name in _FIRST_STRUCTURES if name in grid.structures),
        _longer(grid),
        ((grid.scaled(name, value), {}) for name, value in sizes),
        repeat((grid.base, {}), _FIRST),
    )
    first = first_families(grid)
    families = chain(rng.sample(first, len(first)), repeat(grid.families[0]))
    fitting = (each for each in others if fits(grid, each[0]))
    for (wish, changes), family in islice(zip(fitting, families, strict=False), _FIRST):
        yield wish, {**changes, "family": family}


def first_families(grid: Grid) -> Sequence[str]:
    """Return the families that are to come first."""
    return [name for name in _FIRST_FAMILIES if name in grid.families][:_FIRST]


def spoken_of(grid: Grid) -> list[str]:
    """Return the families that only a contract has that speaks of NaN, of infinities or of what may be anything."""
    return [name for name in grid.families if name in SPECIAL]


def other_families(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield those that did not come first, in any order and each at any size."""
    tried = {*first_families(grid), *spoken_of(grid)}
    if "zero_rows" in grid.families:
        yield grid.ones, {"family": "zero_rows"}
    rest = [name for name in grid.families[1:] if name not in tried]
    for family in [*rng.sample(rest, len(rest)), *(name for name in rest if name in _BY_CHANCE for _ in range(_MORE))]:
        size = rng.choice((rng.choice(_ANY), between(rng, *_BETWEEN)))
        yield _sized(grid, rng, (size,)), {"family": family}


def telling_families(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield the families that tell most at larger sizes, with longer rows, some with other index tensors."""
    telling = [name for name in _TELLING if name in grid.families]
    for family in rng.sample(telling, len(telling)):
        size = rng.choice((rng.choice(_MANY), odd(rng, *_ODD)))
        wish = _sized(grid, rng, (size, rng.choice(_MANY[:2]), *_FEWER))
        rows = (odd(rng, *rng.choice(_ROWS)), odd(rng, *_ROWS[0]))
        longer = ({**wish, **dict.fromkeys(grid.rows, row)} for row in rows)
        changes = {"family": family, "structure": _structure(grid, rng, family)}
        yield next((each for each in longer if fits(grid, each)), wish), changes


def _structure(grid: Grid, rng: Random, family: str) -> str:
    """Choose index tensors: half of the time the plainest.

    Where something is written in place, rows of zeros do not come where there were zeros: the same rows are zero in all
    tensors. Before them there is NaN, if there can be.
    """
    written = any(output.param for output in grid.contract.definition.outputs.values()) and family == "zero_rows"
    if written and "stale_nan" in grid.structures:
        return "stale_nan"
    hiding = _NOTHING_SHOWS | ({"identity"} if written else set())
    shown = [name for name in grid.structures if name not in hiding]
    return rng.choice((grid.structures[0], rng.choice(shown)))


def _sized(grid: Grid, rng: Random, sizes: Sequence[int]) -> dict[str, int]:
    """Return sizes with the first for one axis that fits: mostly for the one that says best how much work there is."""
    axes = _axes(grid)
    work = [name for name in axes if name in grid.counts or name in grid.totals or not grid.lowest(name)] or axes
    if not work:
        return grid.base
    name = rng.choice((work[0], rng.choice(work)))
    return next((wish for value in sizes if fits(grid, wish := grid.scaled(name, value))), grid.base)


def _axes(grid: Grid) -> list[str]:
    return [name for name in order(grid) if name not in grid.pools and name in grid.contract.axis_names]


def _longer(grid: Grid) -> Iterator[Wish]:
    """Yield cases in which one sequence is longer than small tiles, each for another total."""
    totals = [*grid.totals] * len(_FIRST_LONG)
    for value, axis in zip(_FIRST_LONG, totals, strict=False):
        few = {name: min(count, grid.base[name]) for name, count in grid.sequences(2).items()}
        yield {**grid.base, **few, axis: value}, {"structure": "one_long"}
