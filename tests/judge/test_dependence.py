"""Numbers that depend on each other: walks are those added up by hand, honest numbers pass, patterns are found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.judge.sampling.dependence import alike, crowded, points
from pytest_flashinfer.judge.sampling.draws import FALSE_ALARM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS, ROWS = 24, 40
MIXED = [1] * 5 + [5] * 19 + [17] * 7 + [2, 33, 33, 9, 40]


def numbers(seed: int, calls: int = CALLS, rows: int = ROWS) -> torch.Tensor:
    return torch.rand(calls, rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def walks_by_hand(z: list[complex], sizes: list[int]) -> Iterator[float]:
    """Yield the scores of all pairs of rows that `alike` is said to compare, one distance after the other."""
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    for apart in range(1, len(z)):
        yield from walk([(at + apart, at) for at in range(len(z) - apart)], z)
    for size in set(sizes) - {1}:
        own = [start for start, rows in zip(starts, sizes, strict=True) if rows == size]
        half = (size + 1) // 2
        low, high = list(range(half)), list(range(half, size))
        blocks = [([start + row for row in high], [start + row for row in low]) for start in own]
        every = [[start + row for row in range(size)] for start in own]
        for some in (blocks, *(list(zip(every[back:], every[:-back], strict=True)) for back in (1, 2, 3))):
            for turned in (False, True):
                for apart in range(-size, size + 1):
                    pairs = [
                        (one, other[::-1][row - apart] if turned else other[row - apart])
                        for ones, other in some
                        for row, one in enumerate(ones)
                        if 0 <= row - apart < len(other)
                    ]
                    yield from walk(pairs, z)


def walk(pairs: list[tuple[int, int]], z: list[complex]) -> tuple[float, ...]:
    steps = max(1, sum(1 for one, other in pairs if z[one] and z[other]))
    same = sum(z[one] * z[other].conjugate() for one, other in pairs)
    mirrored = sum(z[one] * z[other] for one, other in pairs)
    return abs(same) ** 2 / steps, abs(mirrored) ** 2 / steps


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=7), st.integers(0, 2**32))
def test_the_longest_walk_is_the_one_that_is_found_by_hand(sizes: list[int], seed: int) -> None:
    rows = numbers(seed, 1, sum(sizes))[0]
    rows = (4 * rows).floor() / 4 + rows / 8  # so that some walks are long
    rows[rows > 0.97] = math.nan
    z = points(rows.tolist())
    longest = max(walks_by_hand(z.tolist(), sizes))
    compared = 2 * (len(z) - 1) + sum(
        4 * 2 * size * min(3, sizes.count(size) - 1) + 4 * size for size in {*sizes} - {1}
    )
    assert alike(z, sizes) == pytest.approx(min(1.0, compared * math.exp(-longest)), rel=1e-6)


@pytest.mark.parametrize("sizes", [[1] * 20, [ROWS] * CALLS, MIXED], ids=["few", "equal", "mixed"])
@pytest.mark.parametrize("test", [alike, crowded])
def test_independent_numbers_are_accused_as_rarely_as_stated(
    test: Callable[[torch.Tensor, list[int]], float], sizes: list[int]
) -> None:
    found = [test(points(numbers(seed, 1, sum(sizes))[0].tolist()), sizes) for seed in range(100)]
    assert min(found) > 1e-4
    assert sum(each < 0.1 for each in found) <= 10 + 3 * math.sqrt(10)


def antithetic(x: torch.Tensor) -> torch.Tensor:
    half = x[:, : ROWS // 2]
    return torch.cat([half, 1 - half], dim=1)


def before(x: torch.Tensor, turned: Callable[[torch.Tensor], torch.Tensor], back: int = 1) -> torch.Tensor:
    """Take every other call's numbers from those of an earlier call."""
    x[back :: 2 * back] = turned(x[:: 2 * back][: len(x[back :: 2 * back])])
    return x


ALIKE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows half a call apart": lambda x: x[:, : ROWS // 2].repeat(1, 2),
    "one minus that of rows half a call apart": antithetic,
    "the first row and the last": lambda x: torch.cat([x[:, : ROWS // 2], x[:, : ROWS // 2].flip(1)], dim=1),
    "the call before, in reverse": lambda x: before(x, lambda one: one.flip(1)),
    "one minus the call before, in reverse": lambda x: before(x, lambda one: 1 - one.flip(1)),
    "the call before, by seven rows": lambda x: before(x, lambda one: one.roll(7, 1)),
    "two calls before, one minus": lambda x: before(x, lambda one: 1 - one, 2),
    "a table that is read around": lambda x: x.reshape(-1)[:401].repeat(3)[: x.numel()].view_as(x),
    "always as much more": lambda x: (x[:1] + 0.3 * torch.arange(CALLS)[:, None]) % 1.0,
}


@pytest.mark.parametrize("name", ALIKE)
def test_numbers_that_follow_from_others_are_found(name: str) -> None:
    for seed in range(3):
        x = ALIKE[name](numbers(seed))
        x += 0.1 * (numbers(seed + 9) - 0.5)  # as ids with much mass make it
        x[numbers(seed + 5) > 0.8] = math.nan
        assert alike(points((x % 1.0).reshape(-1).tolist()), [ROWS] * CALLS) < FALSE_ALARM / 50


def test_rows_that_share_the_circle_out_are_found_in_whatever_order() -> None:
    shares = (torch.arange(ROWS) + numbers(1, 2 * CALLS, 1)) / ROWS
    mixed = shares.gather(1, numbers(2, 2 * CALLS).argsort(1))
    series = points(((mixed + 0.05 * numbers(3, 2 * CALLS)) % 1.0).reshape(-1).tolist())
    assert crowded(series, [ROWS] * 2 * CALLS) < FALSE_ALARM / 50


def test_rows_that_have_a_number_in_common_are_found_whichever_they_are() -> None:
    common = numbers(1).gather(1, (5 * numbers(2)).long())
    assert crowded(points(common.reshape(-1).tolist()), [ROWS] * CALLS) < FALSE_ALARM / 50


def test_calls_of_few_rows_say_nothing_of_evenness() -> None:
    assert crowded(points(numbers(1).reshape(-1).tolist()), [4] * (CALLS * ROWS // 4)) == 1.0
    assert crowded(points([]), []) == 1.0
    assert alike(points([0.5]), [1]) == 1.0
