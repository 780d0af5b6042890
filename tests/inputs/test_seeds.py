"""Seeds that nobody can find by trying: neither that of a run nor that of another case, from what a kernel sees."""

from __future__ import annotations

import itertools
from dataclasses import replace

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.cases.contents import Contents
from pytest_flashinfer.cases.default_inputs import DefaultInputs
from pytest_flashinfer.cases.making import Cases
from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.seeds import SEEDS, derived, way_of
from pytest_flashinfer.inputs.sizes.strategies import case_strategy, edge_cases
from pytest_flashinfer.inputs.variant import KINDS

from .contracts import RAGGED

RUNS = st.integers(0, SEEDS - 1)
SHORT = 1 << 32
AXES = {"n": 3, "total": 9, "len_indptr": 4, "h": 8}


def contents_of(seed):
    maker = DefaultInputs(RAGGED, "cpu", None)
    return Contents(RAGGED, maker, maker, seed)


@given(RUNS, st.integers(2, 9))
def test_what_a_seed_takes_for_one_purpose_tells_nothing_of_another(seed, ways):
    pairs = {(way_of(seed + more, "holes", ways), way_of(seed + more, "repeats", ways)) for more in range(40 * ways**2)}
    assert pairs == set(itertools.product(range(ways), repeat=2))


@pytest.mark.parametrize("seed", [0, 7, SEEDS - 1])
def test_no_seed_of_a_case_can_be_tried(seed):
    @hypothesis.settings(max_examples=30, database=None, deadline=None)
    @hypothesis.seed(seed)
    @given(case_strategy(RAGGED, seed=seed))
    def draw(case):
        drawn.append(case[1].seed)

    drawn = [recipe.seed for _, recipe in edge_cases(RAGGED, seed=seed)]
    draw()
    workload = Workload("w", AXES, {name: InputSpec("random") for name in RAGGED.inputs})
    drawn.append(Cases(contents_of(seed), KINDS).first(workload).recipe.seed)
    ordered = sorted({*drawn, seed})
    assert len(ordered) > 60
    assert min(each - before for before, each in itertools.pairwise(ordered)) > SHORT


@pytest.mark.parametrize("bit", [0, 31, 32, 47, 62])
def test_contents_depend_on_all_bits(bit):
    """A generator on the CPU takes 32 bits of what it is given: one that took those of a seed would tell half of it."""
    contents = contents_of(1)
    one, other = (contents.case(AXES, Recipe(seed), None) for seed in (5, 5 ^ 1 << bit))
    for kind in (None, *KINDS):
        pair = [case if kind is None else contents.varied(case, kind, "x") for case in (one, other)]
        assert any(not torch.equal(pair[0].values[name], pair[1].values[name]) for name in RAGGED.inputs)
    assert one.recipe.short_seed != other.recipe.short_seed


def test_what_changes_in_a_value_follows_from_all_bits(monkeypatch):
    given_, generator = [], torch.Generator

    class Noted(generator):
        def manual_seed(self, seed):
            given_.append(seed % SHORT)
            return super().manual_seed(seed)

    contents = contents_of(1)
    case = contents.case(AXES, Recipe(5 << 32 | 77), None)
    monkeypatch.setattr(torch, "Generator", Noted)
    contents.varied(case, "one_changed", "x")
    assert given_
    assert 77 not in given_


@given(st.integers(-(1 << 80), 1 << 80))
def test_a_short_seed_is_the_seed_where_that_is_short(seed):
    short = Recipe(seed).short_seed
    assert 0 <= short < SHORT
    assert short == seed or not 0 <= seed < SHORT


@pytest.mark.parametrize("seed", [-1, SEEDS - 1, SEEDS, 1 << 70])
def test_a_line_may_hold_any_whole_number(seed):
    recipe = replace(Recipe.from_json({"seed": seed}), structure="mixed")
    assert recipe.to_json()["seed"] == seed
    case = contents_of(1).case(AXES, recipe, None)
    assert contents_of(1).varied(case, "one_changed", "x").values.keys() == case.values.keys()
    assert 0 <= recipe.with_seed_after(3).seed < SEEDS


def test_a_derived_seed_is_the_same_everywhere():
    """Lines that were saved, and seeds that were noted, replay on another machine."""
    assert derived(7, "x") == derived(7, "x") != derived(7, "y")
    assert (derived(7, "x"), way_of(7, "x", 5)) == (2135289556191648, 3)
