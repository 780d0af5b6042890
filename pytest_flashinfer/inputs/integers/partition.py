"""Splitting a total into segments: the shapes of ragged batches that kernels get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


def partition(total: int, count: int, variant: str, rng: Random, caps: Sequence[int] | None = None) -> list[int]:
    """Split `total` into `count` lengths >= 0 that sum to it; `caps` bounds each where their sum allows.

    `uniform`: as equal as can be, now and then but for two; `one_long`: one segment has all; `single`: as many of one
    element as possible, the rest in one segment; `empty`: more than half are empty, the first and the last among them;
    anything else is mixed: empty ones, single elements, short ones and now and then a long one, in random order.
    `shared` is so or as equal as can be: of sequences that are as long some are told by less than all their pages.
    """
    if count <= 0:
        return []
    variant = "equal" if variant == "shared" and rng.randrange(2) else variant
    lengths = _MAKE.get(variant, _mixed)(total, count, rng)
    return lengths if caps is None else capped(lengths, caps, rng)


def floored(lengths: Sequence[int], least: int, *, none: bool = False) -> list[int]:
    """Return lengths of the same sum of which none is below `least`, as far as the sum allows; the longest give.

    Those that are 0 stay, where `none` says so.
    """
    result = list(lengths)
    short = [i for i, n in enumerate(result) if n < least and not (none and n == 0)]
    given = sorted((i for i, n in enumerate(result) if n > least), key=result.__getitem__)
    for i in short:
        while result[i] < least and given:
            longest = given[-1]
            part = min(least - result[i], result[longest] - least)
            result[i] += part
            result[longest] -= part
            if result[longest] <= least:
                given.pop()
    return result


def _equal(total: int, count: int, rng: Random) -> list[int]:
    del rng
    return [total // count + (i < total % count) for i in range(count)]


def _uniform(total: int, count: int, rng: Random) -> list[int]:
    lengths = _equal(total, count, rng)
    if count > 2 and total >= count and rng.randrange(2):  # noqa: PLR2004 - the first stays
        # who concludes from the first one and the total that all are equal is wrong then
        longer, shorter = rng.sample(range(1, count), 2)
        lengths[longer] += 1
        lengths[shorter] -= 1
    return lengths


def _one_long(total: int, count: int, rng: Random) -> list[int]:
    lengths = [0] * count
    lengths[rng.randrange(count)] = total
    return lengths


def _single(total: int, count: int, rng: Random) -> list[int]:
    if total < count:
        ones = set(rng.sample(range(count), total))
        return [int(i in ones) for i in range(count)]
    lengths = [1] * count
    lengths[rng.randrange(count)] += total - count
    return lengths


def _empty(total: int, count: int, rng: Random) -> list[int]:
    inner = list(range(1, count - 1)) or [count - 1]
    filled = rng.sample(inner, max(1, min(len(inner), count // 3)))
    return _spread([0] * count, filled, total, rng)


def _mixed(total: int, count: int, rng: Random) -> list[int]:
    order = rng.sample(range(count), count)
    empty = order[: round(count * 0.25)]
    rest = order[len(empty) :]
    ones = rest[: min(round(count * 0.25), max(0, total - 1))]
    lengths = [0] * count
    for i in ones:
        lengths[i] = 1
    return _spread(lengths, rest[len(ones) :] or rest, total - len(ones), rng)


def _spread(lengths: list[int], where: Sequence[int], total: int, rng: Random) -> list[int]:
    """Add `total` to the lengths at `where`, unequally; one in eight gets much more than its share."""
    weights = [rng.expovariate(1) * (8 if rng.random() < 1 / 8 else 1) for _ in where]
    left, whole = total, sum(weights)
    for i, weight in zip(where, weights, strict=True):
        part = min(left, int(total * weight / whole))
        lengths[i] += part
        left -= part
    while left > 0:  # what rounding left over: less than one for each
        lengths[rng.choice(where)] += 1
        left -= 1
    return lengths


def capped(lengths: list[int], caps: Sequence[int], rng: Random) -> list[int]:
    """Move what exceeds a cap to segments with room; where the caps leave no room, it stays."""
    result = [min(length, cap) for length, cap in zip(lengths, caps, strict=True)]
    left = sum(lengths) - sum(result)
    for i in rng.sample(range(len(result)), len(result)):
        part = min(left, caps[i] - result[i])
        result[i] += part
        left -= part
    if left:
        result[rng.randrange(len(result))] += left
    return result


_MAKE: Final = {"equal": _equal, "uniform": _uniform, "one_long": _one_long, "single": _single, "empty": _empty}
