"""Lengths of sequences at which kernels go wrong: around whole pages, none, one, all there is room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

_PAGES: Final = 4  # most sequences of a batch are no longer, for references walk through all of them
_TOKENS: Final = 64
_WHOLE: Final = 4  # lengths that are all equal are whole pages in fewer cases than one in so many
_LONGEST: Final = 3  # of the lengths: those that count as long


def telling(page: int, low: int, high: int, rng: Random) -> list[int]:
    """Return different lengths from `low` to `high` in random order; at least one."""
    short = max(low, min(high, max(_TOKENS, _PAGES * page)))
    whole, any_length = page * rng.randint(1, max(1, short // page)), rng.randint(low, short)
    around = {n + i for n in (page, whole) for i in (-1, 0, 1)}
    long = {rng.randint(short, high), high - 1, high} if high > short else {high}
    lengths = sorted(n for n in {low, 0, 1, *around, any_length, any_length | 1, *long} if low <= n <= high)
    rng.shuffle(lengths)
    return lengths


def arranged(options: Sequence[int], count: int, structure: str, page: int, rng: Random) -> list[int]:
    """Return the lengths of `count` sequences, out of `options`, in a structure that `partition` has as well."""
    if structure == "uniform":
        odd = [n for n in options if n % page or (n and (page == 1 or not rng.randrange(_WHOLE)))]
        return [next(iter(odd), max(options))] * count
    least = min(options)
    rest = {"one_long": least, "empty": least, "single": max(least, min(1, max(options)))}.get(structure)
    if rest is None or (count == 1 and structure != "one_long"):
        return [least] if structure == "empty" else [options[i % len(options)] for i in range(count)]
    if count == 1:
        return [max(options)]
    lengths = [rest] * count
    inner = range(1, count - 1) if structure == "empty" and count > 2 else range(count)  # noqa: PLR2004 - has an inside
    for i in rng.sample(inner, min(count, max(1, count // 3 if structure == "empty" else 1))):
        lengths[i] = rng.choice(sorted(options)[-_LONGEST:])
    return lengths


def raised(lengths: Sequence[int], missing: int, room: Sequence[int]) -> list[int]:
    """Return longer lengths, by `missing` in all, as far as the `room` of each allows."""
    result = list(lengths)
    for i, most in enumerate(room):
        more = max(0, min(missing, most - result[i]))
        result[i] += more
        missing -= more
    return result
