"""Sizes that a run's seed draws: those that are always tried leave gaps, in which a kernel may do as it likes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.sizes.grid import MORE_SIZES, SIZES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

Range = tuple[int, int]  # from the first to the last
_KNOWN: Final = frozenset((*SIZES, *MORE_SIZES))
_TILES: Final = (4, 8, 16, 32, 64, 128)  # kernels have branches for whole numbers of these
_WHOLE: Final = 0.5  # how often a size is one
_TRIES: Final = 8
_KEPT: Final = 14  # of the later sizes, of which the others give way to drawn ones
# The parts of the drawn ones: each is half as large again as the one before.
_PARTS: Final = ((19, 30), (34, 50), (51, 80), (81, 126), (132, 254), (258, 510), (514, 1022))
_EARLY: Final[dict[int, Range]] = {17: (19, 62), 67: (68, 254)}  # by the size that they come after
_BESIDE: Final = 8  # a size past a bound is up to so great a part of it larger


def between(rng: Random, low: int, high: int) -> int:
    """Return a size from `low` to `high` that is not among those always tried, if there is one.

    It is as likely to lie between one number and its double as between another and its own.
    """
    tiles = [tile for tile in _TILES if high - high % tile >= low]
    tile = rng.choice(tiles) if tiles and rng.random() < _WHOLE else 1
    for _ in range(_TRIES):
        size = int(low * ((high + 1) / low) ** rng.random()) // tile * tile
        if low <= size <= high and size not in _KNOWN:
            return size
    return next((n for n in range(low, high + 1) if n not in _KNOWN), low)


def odd(rng: Random, low: int, high: int) -> int:
    """Return an odd size from `low`, which has to be odd, to `high`: a whole number of no tiles."""
    return rng.randrange(low, high + 1, 2)


def past(rng: Random, bounds: Sequence[int]) -> tuple[int, ...]:
    """Return a size for each bound, which is even: an odd one somewhat above it, or the next one."""
    return tuple(rng.choice((n + 1, odd(rng, n + 1, n + n // _BESIDE))) for n in bounds)


def early_sizes() -> tuple[int | Range, ...]:
    """Return the sizes that come first, ascending; ranges are to be drawn from."""
    return tuple(each for n in SIZES for each in ((n, _EARLY[n]) if n in _EARLY else (n,)))


def later_sizes(rng: Random) -> tuple[int | Range, ...]:
    """Return the others, ascending: each time other ones of those that are known, and ranges in place of the rest."""
    kept = rng.sample(MORE_SIZES, _KEPT)
    return tuple(sorted((*kept, *_PARTS), key=lambda each: each if isinstance(each, int) else each[0]))
