"""Sizes that the seed draws: between those that are always tried, of one axis and of several at once."""

from __future__ import annotations

from random import Random

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.sizes.grid import MORE_SIZES, SIZES, grid_of
from pytest_flashinfer.inputs.sizes.random_sizes import between, early_sizes, later_sizes, odd, past
from pytest_flashinfer.inputs.sizes.several_axes import several_wishes
from pytest_flashinfer.inputs.sizes.strategies import axes_strategy
from tests.inputs.contracts import ALL, DENSE, PAGED_DECODE, RAGGED, axes, define, tensor

SEEDS = range(1, 13)
GAPS = ((21, 30), (34, 62), (68, 126), (132, 254), (258, 510), (514, 1022))
ROWS = define("rows", axes(n=None, w=8), {"x": tensor("n w")}, {"y": tensor("n w")}, "")
PRODUCT = define("product", axes(b=None, m=None, n=None, k=None, w=16),
                 {"x": tensor("b m k w"), "y": tensor("b n k w")}, {"z": tensor("b m n")}, "")  # fmt: skip


def sizes_of(seed):
    return [sizes["n"] for sizes, _ in edge_cases(ROWS, seed=seed)]


@given(st.integers(), st.integers(1, 600), st.integers(0, 600))
def test_drawn_sizes_are_where_they_are_wanted(seed, low, more):
    rng = Random(seed)
    assert low <= between(rng, low, low + more) <= low + more
    first, last = low | 1, (low | 1) + more
    assert first <= odd(rng, first, last) <= last
    assert odd(rng, first, last) % 2 == 1
    assert all(1.125 * n >= each > n for n, each in zip((512, 4096), past(rng, (512, 4096)), strict=True))


@pytest.mark.parametrize(("low", "high"), GAPS)
def test_nearly_every_seed_has_a_size_in_each_gap_between_known_sizes(low, high):
    drawn = [set(sizes_of(seed)) - {*SIZES, *MORE_SIZES} for seed in SEEDS]
    assert sum(any(low <= n <= high for n in sizes) for sizes in drawn) >= len(SEEDS) - 2


def test_any_size_of_a_few_hundred_comes_with_some_seed_and_whole_tiles_often():
    every = [set(sizes_of(seed)) for seed in range(150)]
    missing = [n for n in range(19, 200) if not any(n in each for each in every)]
    assert len(missing) < 50
    assert not any(n < 60 or n % 8 == 0 for n in missing)
    assert all(sum(n in each for each in every) > 1 for n in (24, 48, 96, 100, 192, 384))


def test_known_sizes_come_as_well_and_smaller_ones_first():
    for seed in SEEDS:
        sizes = sizes_of(seed)
        assert set(SIZES) <= set(sizes)
        assert len({*MORE_SIZES} & {*sizes}) > len(MORE_SIZES) // 2
    assert set(MORE_SIZES) <= set().union(*map(sizes_of, SEEDS))
    for sizes in (early_sizes(), later_sizes(Random(1))):
        starts = [each if isinstance(each, int) else each[0] for each in sizes]
        assert starts == sorted(starts)


def test_there_are_no_more_cases_for_it():
    assert len(early_sizes()) + len(later_sizes(Random(1))) <= len(SIZES) + len(MORE_SIZES)


@pytest.mark.parametrize("definition", [ROWS, RAGGED, DENSE], ids=lambda d: d.name)
def test_one_seed_has_the_same_sizes_each_time(definition):
    assert edge_cases(definition, seed=5) == edge_cases(definition, seed=5)


def middle(grid, sizes):
    axes = [name for name in grid.contract.free if name not in grid.pools | grid.counts and sizes[name] >= 34]
    return len(axes) + any(sizes[name] >= 34 for name in grid.counts)


@pytest.mark.parametrize("definition", [PRODUCT, DENSE, RAGGED, PAGED_DECODE], ids=lambda d: d.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_several_axes_have_a_middle_size_at_once(definition, seed):
    grid = grid_of(definition, (), 1 << 19)
    wishes = [grid.settled(wish) for wish, _ in several_wishes(grid, Random(seed))]
    assert 2 <= len(wishes) <= 4
    assert all(grid.fits(sizes) and middle(grid, sizes) >= 2 for sizes in wishes)
    cases = [sizes for sizes, _ in edge_cases(definition, max_elements=1 << 19, seed=seed)]
    assert sum(middle(grid, sizes) >= 2 for sizes in cases[:60]) >= 2


def test_batches_of_a_few_have_queries_and_keys_of_middle_sizes():
    for seed in SEEDS:
        sizes = [sizes for sizes, _ in edge_cases(DENSE, max_elements=1 << 19, seed=seed)]
        assert any(each["B"] >= 3 and each["Q"] >= 34 and each["KV"] >= 34 for each in sizes)


def test_without_memory_there_are_none():
    for definition in ALL:
        grid = grid_of(definition, (), 1)
        assert all(grid.fits(grid.settled(wish)) for wish, _ in several_wishes(grid, Random(1)))


def test_any_size_is_drawn_and_small_ones_are_what_it_shrinks_to():
    found = set()

    @settings(max_examples=400, deadline=None, database=None)
    @hypothesis.seed(3)
    @given(axes_strategy(ROWS))
    def draw(sizes):
        found.add(sizes["n"])

    draw()
    others = found - {*range(21), *SIZES, *MORE_SIZES}
    assert len(others) > 40
    assert all(any(low <= n <= high for n in others) for low, high in GAPS)
    assert max(found) <= max(grid_of(ROWS).candidates["n"])
    found = hypothesis.find(axes_strategy(ROWS), lambda sizes: sizes["n"] > 12, settings=settings(database=None))
    assert found == {"w": 8, "n": 13}


def test_a_size_beyond_what_a_constraint_allows_gives_way_to_a_smaller_one():
    sizes = axes(n=None, part=None, head_dim=48)
    inputs = {"x": tensor("n head_dim"), "table": tensor("n part")}
    definition = define("partial", sizes, inputs, {"y": tensor("n head_dim")}, "", "part % 2 == 0", "part <= head_dim")
    found = set()

    @settings(max_examples=300, deadline=None, database=None)
    @hypothesis.seed(3)
    @given(axes_strategy(definition))
    def draw(sizes):
        found.add(sizes["part"])

    draw()
    assert {2, 48} <= found <= {*range(2, 49, 2)}
