"""Which family of contents comes at which size: what nobody knows before the run, and small ones first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.sizes.grid import grid_of
from tests.inputs.contracts import DELTA, MLA_PREFILL, PAGED_DECODE, RAGGED, ROUTED, STEP, TABLE, axes, define, tensor

SEEDS = range(1, 9)
LARGE = 65
ROWS = define("rows", axes(n=None, w=8), {"x": tensor("n w"), "weight": tensor("w")}, {"y": tensor("n w")}, "")
APPEND = define(
    "append", axes(n=None, pool=64, w=8),
    {"k": tensor("n w"), "k_cache": tensor("pool w"), "slot_mapping": tensor("n", "int32", description="distinct")},
    {"new": tensor("pool w", param="k_cache")}, "", "pool >= n",
)  # fmt: skip


def sizes_by_family(seed, first=None):
    found = {}
    for sizes, recipe in edge_cases(ROWS, seed=seed)[:first]:
        found.setdefault(recipe.family, set()).add(sizes["n"])
    return found


def test_sizes_of_families_differ_from_seed_to_seed_and_stay_for_one():
    for family in ("zero_rows", "large", "tiny", "constant_rows", "sparse"):
        assert len({frozenset(sizes_by_family(seed)[family]) for seed in SEEDS}) > 3
    assert edge_cases(ROWS, seed=3) == edge_cases(ROWS, seed=3)


@pytest.mark.parametrize("seed", SEEDS)
def test_families_that_tell_most_come_at_a_size_above_small_blocks_as_well(seed):
    found = sizes_by_family(seed)
    for family in ("zero_rows", "large", "tiny", "ties", "negative", "big_row"):
        assert max(found[family]) >= LARGE
    early = {family for family, sizes in sizes_by_family(seed, 20).items() if max(sizes) >= LARGE}
    assert len(early - {"normal"}) >= 4, "where calls are slow little else is tried"


@pytest.mark.parametrize("definition", [RAGGED, PAGED_DECODE, MLA_PREFILL, STEP, TABLE], ids=lambda d: d.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_are_small_and_tell_most_whatever_the_seed(definition, seed):
    grid, first = grid_of(definition), edge_cases(definition, seed=seed)[:11]
    low = "opposed" if "opposed" in grid.families else "negative"
    assert {"normal", "zero_rows", "tiny", "large", "ties", low} <= {recipe.family for _, recipe in first}
    telling = {"empty", "shared", "stale_nan", "q_longer"}
    assert set(grid.structures) & telling <= {recipe.structure for _, recipe in first}
    free = set(grid.contract.free) - grid.pools
    assert max(sizes[name] for sizes, _ in first[:8] for name in free) < 80


@pytest.mark.parametrize("definition", [PAGED_DECODE, DELTA, ROUTED], ids=lambda d: d.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_structures_and_families_are_tried_whatever_the_seed(definition, seed):
    grid, recipes = grid_of(definition), [recipe for _, recipe in edge_cases(definition, seed=seed)]
    assert {recipe.structure for recipe in recipes} == set(grid.structures)
    assert {recipe.family for recipe in recipes} == set(grid.families)


def test_rows_of_zeros_are_not_written_where_there_are_zeros_already():
    assert "identity" in grid_of(APPEND).structures
    pairs = [{(r.family, r.structure) for _, r in edge_cases(APPEND, seed=seed)} for seed in range(40)]
    assert not any(("zero_rows", "identity") in each for each in pairs)
    assert any(("large", "identity") in each for each in pairs)


def test_before_rows_of_zeros_there_is_nan_where_there_can_be():
    written = "def run(k, k_cache, slot_mapping):\n    k_cache[slot_mapping.long()] = k\n    return k_cache"
    append = replace(APPEND, reference=written)
    for seed in SEEDS:
        assert ("zero_rows", "stale_nan") in {(r.family, r.structure) for _, r in edge_cases(append, seed=seed)[:30]}


def test_a_row_of_several_blocks_is_among_the_early_ones():
    """Who bounds a loop by 512 is shown up by nothing shorter, and where calls are slow few cases are tried."""
    wide = define("wide", axes(n=None, w=None), {"x": tensor("n w")}, {"y": tensor("n w")}, "")
    early = [any(sizes["w"] > 512 for sizes, _ in edge_cases(wide, seed=seed)[:30]) for seed in range(20)]
    assert sum(early) > 15
