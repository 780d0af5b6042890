"""Cases in which several axes have a size that is not small: bounds that hold for one at a time do not show there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.sizes.long_cases import Wish, fits
from pytest_flashinfer.inputs.sizes.random_sizes import between

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from pytest_flashinfer.inputs.sizes.grid import Grid

_CASES: Final = 4
_AXES: Final = 3  # at once
_MIDDLE: Final = ((34, 200), (34, 62), (34, 36))  # the first that there is memory for
_OTHERS: Final = (3, 2, 1)  # of all other axes, so too
_EACH: Final = 2  # elements of a sequence and some more, where their total is no axis that was chosen
_FEW: Final = 2  # axes at once, at least


def several_wishes(grid: Grid, rng: Random) -> Iterator[Wish]:
    """Yield a few cases with two or three axes of drawn sizes, each beginning with another one, as memory allows."""
    free = [name for name in grid.contract.free if name in grid.contract.axis_names and name not in grid.pools]
    counts = [name for name in free if name in grid.counts]
    names = [name for name in free if name not in counts[1:]]
    if len(names) < _FEW:
        return
    for first in rng.sample(names, min(len(names), _CASES)):
        others = [name for name in names if name != first]
        grown = (_grown(grid, [first, *rng.sample(others, len(others))], few, rng) for few in _OTHERS)
        yield from ((wish, {}) for wish in [next(filter(None, grown), None)] if wish is not None)


def _grown(grid: Grid, names: Sequence[str], few: int, rng: Random) -> dict[str, int] | None:
    """Return sizes of which two or three are middle ones, of the axes named first; `None` where that is too much."""
    wish = {**dict.fromkeys(grid.ones, few), **grid.sequences(few), **{name: grid.base[name] for name in grid.pools}}
    wish.update(dict.fromkeys(grid.totals, _EACH * few))
    grown = 0
    for name in names:
        larger = ({**wish, **_size(grid, name, between(rng, *each))} for each in _MIDDLE)
        fitting = next((each for each in larger if fits(grid, each)), None)
        wish = fitting or wish
        grown += fitting is not None
        if grown == _AXES:
            break
    return wish if grown >= _FEW else None


def _size(grid: Grid, name: str, value: int) -> dict[str, int]:
    if name in grid.counts:
        return {**dict.fromkeys(grid.totals, _EACH * value), **grid.sequences(value)}
    return {name: value}
