"""Draws as uniform numbers: honest samplers are accused as rarely as stated, each kind of wrong one is found."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.judge.sampling.dependence import alike
from pytest_flashinfer.judge.sampling.draws import FALSE_ALARM, RARE, SERIES, TOGETHER, Draws
from pytest_flashinfer.judge.sampling.uniformity import chance, either_way, upper_tail

IDS = 512
Sampler = Callable[[torch.Tensor, int], torch.Tensor]


def rows(number: int, seed: int, ids: int = IDS, heat: float | None = None) -> torch.Tensor:
    """Return distributions that go from many ids that are alike to a few."""
    generator = torch.Generator().manual_seed(seed)
    heats = torch.tensor([0.3, 1.0, 3.0])[torch.randint(3, (number, 1), generator=generator)]
    values = torch.randn(number, ids, generator=generator)
    return (values * (heats if heat is None else heat)).softmax(1)


def drawn(mass: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.multinomial(mass, 1, generator=generator)[:, 0]


def inverse(mass: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    below = mass.double().cumsum(1)
    return torch.searchsorted(below, (uniform * below[:, -1])[:, None], right=True)[:, 0].clamp(max=mass.shape[1] - 1)


def rejected(mass: torch.Tensor, _: int) -> torch.Tensor:
    ids, most = torch.full((len(mass),), -1), mass.amax(1)
    while bool((ids < 0).any()):
        tried = torch.randint(mass.shape[1], (len(mass),))
        taken = torch.rand(len(mass)) * most < mass.gather(1, tried[:, None])[:, 0]
        ids = torch.where((ids < 0) & taken, tried, ids)
    return ids


def counted(mass: torch.Tensor, call: int) -> torch.Tensor:
    """One stream of random numbers for each row, one seed for all calls."""
    seeds = [7919 * row + 104729 * call for row in range(len(mass))]
    uniform = [torch.rand((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in seeds]
    return inverse(mass, torch.stack(uniform))


HONEST: dict[str, Sampler] = {
    "multinomial": lambda mass, _: drawn(mass),
    "race": lambda mass, _: (mass / torch.empty_like(mass).exponential_()).argmax(1),
    "noise": lambda mass, _: (mass.log() - torch.empty_like(mass).exponential_().log()).argmax(1),
    "inverse": lambda mass, _: inverse(mass, torch.rand(len(mass), dtype=torch.float64)),
    "rejection": rejected,
    "counted": counted,
}


def only(mass: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Draw from some ids where these have some of the mass."""
    some = torch.where(chosen, mass, 0.0)
    return drawn(torch.where(some.sum(1, keepdim=True) > 0.3, some, mass))


PLACES = torch.arange(IDS)
GOLDEN = 0.6180339887498949
WRONG: dict[str, Sampler] = {
    "even": lambda mass, _: only(mass, PLACES % 2 == 0),
    "odd": lambda mass, _: only(mass, PLACES % 2 == 1),
    "lower half": lambda mass, _: only(mass, PLACES < IDS // 2),
    "upper half": lambda mass, _: only(mass, PLACES >= IDS // 2),
    "one in four": lambda mass, _: drawn(torch.where(PLACES % 4 == 2, mass, 0.0)),
    "same contents, same id": lambda mass, _: inverse(mass, (mass[:, ::7].double().sum(1) * 1e7) % 1.0),
    "same seed in each call": lambda mass, _: drawn(mass, torch.Generator().manual_seed(0)),
    "one number for all rows": lambda mass, _: inverse(mass, torch.rand((), dtype=torch.float64)),
    "two numbers in turns": lambda mass, _: inverse(mass, torch.rand(2).double().repeat(len(mass))[: len(mass)]),
    "three numbers in turns": lambda mass, _: inverse(mass, torch.rand(3).double().repeat(len(mass))[: len(mass)]),
    "a sequence": lambda mass, call: inverse(mass, (torch.arange(len(mass)).double() + 1000 * call) * GOLDEN % 1.0),
    "greedy": lambda mass, _: mass.argmax(1),
    "any": lambda mass, _: drawn(torch.ones_like(mass)),
}


def item(sampler: Sampler, seed: int, number: int = 16, ids: int = IDS, calls: int = 9) -> list[float]:
    """Return what the looks of one item found: a workload's contents, some others, the first ones again."""
    torch.manual_seed(seed)
    draws, first = Draws(seed), rows(number, seed, ids)
    looks = []
    for call in range(calls):
        mass = rows(number, seed + 7 * call, ids) if 0 < call < 3 else first
        draws.add(sampler(mass, call), mass, mass > 0)
        found = draws.look()
        looks += [] if found is None else [found[0]]
    return looks


@pytest.mark.parametrize("name", HONEST)
def test_honest_samplers_are_accused_as_rarely_as_stated(name: str) -> None:
    looks = [found for seed in range(60) for found in item(HONEST[name], seed, 1 + seed % 9, 31)]
    assert min(looks) > FALSE_ALARM
    few = sum(found < 0.05 for found in looks)
    assert few <= 0.05 * len(looks) + 3 * math.sqrt(0.05 * len(looks))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_samplers_are_found_in_a_few_hundred_draws(name: str) -> None:
    found = [min(item(WRONG[name], seed, 32)) < FALSE_ALARM for seed in range(4)]
    assert all(found), found


def mirrored(mass: torch.Tensor, _: int) -> torch.Tensor:
    half = torch.rand(len(mass) // 2, dtype=torch.float64)
    return inverse(mass, torch.cat([half, 1 - half]))


def turned(mass: torch.Tensor, call: int) -> torch.Tensor:
    """Take the numbers of two calls from one seed, the second time in reverse."""
    numbers = torch.rand(len(mass), dtype=torch.float64, generator=torch.Generator().manual_seed(call // 2))
    return inverse(mass, numbers.flip(0) if call % 2 else numbers)


def from_table(mass: torch.Tensor, call: int) -> torch.Tensor:
    table = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    return inverse(mass, table[(torch.arange(len(mass)) + call * len(mass)) % len(table)])


def cut(mass: torch.Tensor, _: int) -> torch.Tensor:
    ordered, ids = mass.sort(dim=1, descending=True)
    return ids.gather(1, drawn(torch.where(ordered.cumsum(1) - ordered < 0.98, ordered, 0.0))[:, None])[:, 0]


@pytest.mark.parametrize(
    ("sampler", "fault"),
    [(mirrored, TOGETHER[alike]), (turned, TOGETHER[alike]), (from_table, TOGETHER[alike]), (cut, RARE)],
)
def test_what_shows_in_a_thousand_draws_only(sampler: Sampler, fault: str) -> None:
    torch.manual_seed(2)
    draws = Draws(1)
    for call in range(20):
        mass = rows(70, call, heat=1.0)
        draws.add(sampler(mass, call), mass)
    found = draws.look()
    assert found is not None
    assert found == (pytest.approx(0, abs=FALSE_ALARM), fault)


def test_rows_that_say_nothing_keep_their_place() -> None:
    """Rows half a call apart stay that far apart, and a call without any other rows is one as well."""
    draws, certain = Draws(1), torch.eye(IDS)[:32]
    for call in range(40):
        mass = certain.clone() if call % 4 == 3 else rows(32, call, heat=1.0)
        mass[call % 5 :: 5] = certain[call % 5 :: 5]
        draws.add(mirrored(mass, call), mass)
    found = draws.look()
    assert found is not None
    assert found == (pytest.approx(0, abs=FALSE_ALARM), TOGETHER[alike])


def test_rows_whose_tail_is_a_matter_of_rounding_do_not_count_as_rare_ones() -> None:
    """Of ids that are equally likely at the edge a sampler may keep others, or more, than the reference does."""
    mass = torch.cat([torch.full((1, 100), 0.00998), torch.full((1, 2), 0.001), torch.zeros(1, 8)], dim=1)
    draws = Draws(1)
    draws.add(torch.tensor([104]), mass, torch.ones_like(mass) > 0)
    assert draws.total == 1
    assert not draws._rarity.expected.any()
    draws.add(torch.tensor([101]), mass, mass > 0)
    assert draws._rarity.expected.any()


def test_ids_that_follow_from_flat_contents_are_found_in_single_rows() -> None:
    draws, mass = Draws(1), rows(1, 5, 100_000, 0.3)
    for _ in range(4):
        draws.add(torch.tensor([77]), mass)
    found = draws.look()
    assert found is not None
    assert found[0] < FALSE_ALARM
    assert found[1] == SERIES["past"]


def test_some_ids_only_are_found_where_the_same_rows_are_drawn_from_again_and_again() -> None:
    """Which ids they are is in no order: a few more or less of the same ids show it."""
    chosen = torch.rand(IDS, generator=torch.Generator().manual_seed(1)) < 0.5
    mass = torch.zeros(32, IDS).scatter_(1, torch.rand(32, IDS).argsort(1)[:, :16], 1 / 16)
    draws = Draws(1)
    for _ in range(30):
        draws.add(only(mass, chosen), mass)
    found = draws.look()
    assert found is not None
    assert found == (pytest.approx(0, abs=FALSE_ALARM), SERIES["past"])


def test_rows_whose_edge_is_a_matter_of_rounding_are_left_out() -> None:
    mass, support = torch.tensor([[0.5, 0.5, 0.0], [0.7, 0.3, 0.0]]), torch.tensor([[True] * 3, [True, True, False]])
    draws = Draws()
    draws.add(torch.tensor([2, 1]), mass, support)
    assert draws.total == 1
    draws.add(torch.tensor([2, 1]), mass)
    assert draws.total == 3


def test_what_is_certain_says_nothing() -> None:
    draws = Draws()
    for _ in range(100):
        draws.add(torch.tensor([0, 1]), torch.eye(2))
    assert draws.total == 0
    assert draws.look() is None


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(1, 6))
def test_all_numbers_are_uniform_whatever_the_distributions(seed: int, ids: int, number: int) -> None:
    torch.manual_seed(seed)
    draws, mass = Draws(seed), rows(number, seed, ids)
    for _ in range(120 // number):
        draws.add(drawn(mass), mass)
    for name, numbers in draws.series.items():
        assert all(0 <= each < 1 for each in numbers)
        assert chance(numbers) > FALSE_ALARM, name


def test_the_chances_of_uneven_numbers() -> None:
    assert upper_tail(3.841459, 1) == pytest.approx(0.05, rel=1e-5)
    assert chance([]) == 1.0
    assert chance([1e-9]) > FALSE_ALARM, "no single number condemns"
    assert chance([1e-5] * 3) < FALSE_ALARM
    assert chance([0.25] * 60) < FALSE_ALARM
    assert chance([0.5] * 60) < FALSE_ALARM
    found = [chance(torch.rand(100, generator=torch.Generator().manual_seed(seed)).tolist()) for seed in range(1000)]
    assert sum(each < 0.05 for each in found) <= 70


def test_what_is_missing_at_an_end_is_found_though_a_bin_would_hardly_show_it() -> None:
    x = torch.rand(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert chance(x.tolist()) > FALSE_ALARM
    assert chance(x[x < 0.99].tolist()) < FALSE_ALARM
    assert chance(x[x > 0.01].tolist()) < FALSE_ALARM


@settings(deadline=None, max_examples=30)
@given(st.floats(4, 60), st.integers(0, 90))
def test_the_chances_of_counts_are_those_of_poisson(expected: float, seen: int) -> None:
    each = [math.exp(number * math.log(expected) - expected - math.lgamma(number + 1)) for number in range(300)]
    least = min(sum(each[: seen + 1]), sum(each[seen:]))
    found = either_way(torch.tensor([float(seen)]).double(), torch.tensor([expected]).double())
    assert found == pytest.approx(min(1.0, 2 * least), rel=1e-5, abs=1e-13)
