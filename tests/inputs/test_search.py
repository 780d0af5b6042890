"""What is tried, in which order, and how a failing case becomes a small one."""

from __future__ import annotations

import json
from types import SimpleNamespace

import hypothesis
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.cases.making import Cases
from pytest_flashinfer.data.model import Workload
from pytest_flashinfer.inputs.errors import BadData
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.structure import STRUCTURES
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.seeds import derived
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.shrink import simpler
from pytest_flashinfer.inputs.sizes.strategies import (
    axes_strategy,
    case_strategy,
    edge_cases,
    recipe_strategy,
)
from pytest_flashinfer.inputs.variant import KINDS, ONE, variant
from tests.inputs.contracts import (
    ALL,
    DELTA,
    MLA_PREFILL,
    PAGED_DECODE,
    QUANTISED,
    RAGGED,
    RAGGED_PREFILL,
    ROUTED,
    SAMPLING,
    STEP,
    TABLE,
    axes,
    define,
    tensor,
)

LISTED = [{"n": 4, "total": 32}, {"n": 8, "total": 200}]


def test_edges_are_the_same_every_time_small_first_and_distinct():
    one, two = edge_cases(RAGGED, LISTED), edge_cases(RAGGED, LISTED)
    assert one == two
    keys = [(tuple(axes.items()), json.dumps(recipe.to_json())) for axes, recipe in one]
    assert len(set(keys)) == len(keys)
    elements = [grid_of(RAGGED).elements(axes) for axes, _ in one]
    assert max(elements[:8]) < 1000 < max(elements)


def test_edges_reach_what_kernels_get_wrong():
    cases = [(axes, recipe, make_inputs(RAGGED, axes, recipe)["indptr"].diff()) for axes, recipe in edge_cases(RAGGED)]
    assert {0, 1, 2, 3, 9, 17, 33, 129, 257} <= {axes["n"] for axes, _, _ in cases}
    assert any(axes["n"] == 0 == axes["total"] for axes, _, _ in cases)
    assert any(axes["n"] > 0 == axes["total"] for axes, _, _ in cases)
    assert any(lengths.max() > 64 for axes, _, lengths in cases if axes["n"])
    assert any(0 in lengths.tolist() and 1 in lengths.tolist() for _, _, lengths in cases)
    paged = edge_cases(PAGED_DECODE)
    assert max(axes["pages"] for axes, _ in paged) > 155
    assert any(make_inputs(PAGED_DECODE, *case)["kv_indptr"].diff().max() >= 17 for case in paged if case[0]["batch"])


def test_every_structure_family_scalar_and_optional_input_is_among_the_edges():
    for definition in (PAGED_DECODE, DELTA, ROUTED):
        grid, recipes = grid_of(definition), [recipe for _, recipe in edge_cases(definition)]
        assert {recipe.structure for recipe in recipes} == set(grid.structures)
        assert {recipe.family for recipe in recipes} == set(grid.families)
        assert {name for recipe in recipes for name in recipe.scalars} == set(grid.scalars)
        assert {name for recipe in recipes for name in recipe.absent} == set(grid.optional)


@pytest.mark.parametrize("definition", [RAGGED, PAGED_DECODE, MLA_PREFILL, STEP, TABLE], ids=lambda d: d.name)
def test_the_first_edges_tell_most(definition):
    """Where calls are slow nothing else is tried."""
    grid, first = grid_of(definition), edge_cases(definition)[:11]
    families = {recipe.family for _, recipe in first}
    low = "opposed" if "opposed" in grid.families else "negative"
    assert {"normal", "zero_rows", "tiny", "large", "ties", low} <= families
    assert any(0 in axes.values() for axes, _ in first)
    assert first[0][0] == grid.settled(grid.base)
    assert first[1][0] == grid.settled(grid.ones)
    assert all(grid.settled(grid.ones)[name] == count for name, count in grid.sequences(1).items())
    telling = {"empty", "shared", "stale_nan", "q_longer"}
    assert set(grid.structures) & telling <= {recipe.structure for _, recipe in first}


def lengths(definition, case, queries, keys):
    inputs = make_inputs(definition, *case)
    return [inputs[name].diff().tolist() if name.endswith("indptr") else inputs[name].tolist()
            for name in (queries, keys)]  # fmt: skip


@pytest.mark.parametrize("definition", [RAGGED_PREFILL, MLA_PREFILL], ids=lambda d: d.name)
def test_a_single_sequence_with_more_keys_than_queries_comes_early(definition):
    first = [lengths(definition, case, "qo_indptr", "kv_indptr") for case in edge_cases(definition)[:10]]
    alone = [(queries[0], keys[0]) for queries, keys in first if len(queries) == 1]
    assert any(queries == 1 < keys for queries, keys in alone)
    assert any(queries > 1 and keys > 1 for queries, keys in alone)


def test_a_single_sequence_has_lengths_that_differ():
    cases = [case for case in edge_cases(TABLE) if case[0]["batch_size"] == 1]
    drawn = {int(make_inputs(TABLE, *case)["seq_lens"]) for case in cases}
    assert len(cases) > 5
    assert any(n % 4 for n in drawn)
    assert 0 in drawn
    assert len(drawn) > 3


@pytest.mark.parametrize("definition", ALL, ids=lambda d: d.name)
def test_sizes_of_thousands_come_last(definition):
    grid = grid_of(definition)
    free = set(grid.contract.free) - grid.pools  # to point at more is no more work
    cases = edge_cases(definition, max_elements=1 << 19)
    large = [max((axes[name] for name in free), default=0) >= 2000 for axes, _ in cases]
    assert large == sorted(large)
    assert len(large) <= 88, "of a hundred: some are left to chance"


def test_sizes_past_the_listed_ones_are_tried():
    assert any(axes["total"] == 201 for axes, _ in edge_cases(RAGGED, LISTED))
    assert {32, 200, 201} <= set(grid_of(RAGGED, LISTED).candidates["total"])


def test_each_axis_is_as_long_as_a_constant_one_among_the_first_half():
    sizes = axes(n=None, h=None, w=None, channels=20)
    image = define("image", sizes, {"x": tensor("n h w channels")}, {"y": tensor("n h w channels")}, "")
    first = [case_axes for case_axes, _ in edge_cases(image)[:40]]
    assert all(any(each[name] == 20 for each in first) for name in ("n", "h", "w"))


@pytest.mark.parametrize("seed", range(4))
def test_there_are_soon_as_many_tokens_as_sequences_and_not_one_each(seed):
    rules = ("len_indptr == batch + 1", "total == indptr[-1].item()")
    inputs = {"x": tensor("total h"), "indptr": tensor("len_indptr", "int32"), "scale": tensor("batch")}
    ragged = define(
        "ragged", axes(total=None, batch=None, len_indptr=None, h=6), inputs, {"y": tensor("total h")}, "", *rules
    )
    cases = edge_cases(ragged, max_elements=1 << 11, seed=seed)[:25]
    found = [make_inputs(ragged, *case)["indptr"] for case in cases if case[0]["total"] == case[0]["batch"] > 1]
    assert any(len(set(indptr.diff().tolist())) > 1 for indptr in found)


def test_all_of_a_total_may_be_padded_rows_and_each_axis_is_soon_empty():
    rules = ("len_indptr == batch + 1", "int(indptr[-1]) <= total")
    inputs = {"x": tensor("total h"), "indptr": tensor("len_indptr", "int32"), "bias": tensor("longest")}
    padded = define(
        "padded", axes(total=None, batch=None, longest=None, len_indptr=None, h=6), inputs,
        {"y": tensor("batch longest h")}, "", *rules,
    )  # fmt: skip
    early = edge_cases(padded, max_elements=1 << 11)[:25]
    assert any(sizes["total"] == sizes["batch"] * sizes["longest"] > sizes["batch"] > 1 for sizes, _ in early)
    assert all(any(sizes[name] == 0 for sizes, _ in early) for name in ("total", "batch", "longest"))


def test_pointers_end_before_a_total_in_some_cases_where_they_may():
    inputs = {"x": tensor("total h"), "indptr": tensor("len_indptr", "int32"), "scale": tensor("batch")}
    ends = {}
    for rule in ("int(indptr[-1]) <= total", "int(indptr[-1]) == total"):
        ragged = define(
            "ragged", axes(total=None, batch=None, len_indptr=None, h=6), inputs, {"y": tensor("total h")}, "",
            "len_indptr == batch + 1", rule,
        )  # fmt: skip
        sizes = {"total": 23, "batch": 4, "len_indptr": 5, "h": 6}
        ends[rule] = {int(make_inputs(ragged, sizes, Recipe(seed))["indptr"][-1]) for seed in range(30)}
    assert ends["int(indptr[-1]) == total"] == {23}
    assert len(ends["int(indptr[-1]) <= total"]) > 4
    assert 23 in ends["int(indptr[-1]) <= total"]


def test_an_axis_is_soon_as_long_as_a_constant_one_of_an_output_then_of_an_input():
    """A kernel that tells axes by their sizes takes such a tensor for a transposed one."""
    sizes, inputs = axes(total=None, other=None, h=6, d=24, c=40), {"x": tensor("total h d"), "w": tensor("other c")}
    heads = define("heads", sizes, inputs, {"y": tensor("total h d"), "lse": tensor("h total")}, "")
    for seed in range(3):
        sizes = [sizes for sizes, _ in edge_cases(heads, limit=25, seed=seed)]
        found = [(each["total"], each["other"]) for each in sizes]
        of_outputs = [next(i for i, (total, _) in enumerate(found) if total == n) for n in (6, 24)]
        assert max(of_outputs) < next(i for i, (_, other) in enumerate(found) if other == 40)


def test_a_strided_layout_is_tried_when_it_is_asked_for():
    layouts = [recipe.layout for _, recipe in edge_cases(STEP, layouts=("contiguous", "strided"))]
    assert layouts.index("strided") < 5
    assert {recipe.layout for _, recipe in edge_cases(STEP)} == {"contiguous"}


@pytest.mark.parametrize("definition", [RAGGED, PAGED_DECODE, TABLE], ids=lambda d: d.name)
def test_draws_stay_within_the_budget(definition):
    grid = grid_of(definition, (), 3000)

    @settings(max_examples=60, deadline=None, database=None)
    @given(axes_strategy(definition, (), 3000))
    def within(axes):
        assert grid.elements(axes) <= grid.budget

    within()


def test_memory_that_is_short_still_leaves_structures():
    tight = edge_cases(PAGED_DECODE, max_elements=1500)
    assert {recipe.structure for _, recipe in tight} == set(grid_of(PAGED_DECODE).structures)


def test_hypothesis_shrinks_to_small_plain_cases():
    axes, recipe = hypothesis.find(
        case_strategy(RAGGED), lambda case: case[0]["total"] > 6, settings=settings(database=None, deadline=None)
    )
    assert axes["total"] == 7
    assert (recipe.family, recipe.structure, recipe.seed) == ("normal", "mixed", derived(0, "drawn 0"))


def fails(case) -> bool:
    """A kernel that handles at most 20 rows a segment."""
    lengths = make_inputs(RAGGED, *case)["indptr"].diff()
    return bool(len(lengths)) and int(lengths.max()) > 20


def test_greedy_shrinking_ends_at_the_smallest_case():
    case = ({"n": 33, "total": 155, "len_indptr": 34, "h": 8}, Recipe(4, "large", "one_long", scalars={}))
    assert fails(case)
    for _ in range(100):
        smaller = next((each for each in simpler(RAGGED, *case) if fails(each)), None)
        if smaller is None:
            break
        case = smaller
    assert case[0]["total"] == 21
    assert case[0]["n"] == 1
    assert case[1].family == "normal"


@given(recipe_strategy(PAGED_DECODE, layouts=("contiguous", "strided")))
def test_recipes_survive_json(recipe):
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (5, "must be an object, got 5"), ({}, "`seed` must be an integer, got None"), ({"seed": "1"}, "`seed`"),
        ({"seed": True}, "`seed`"), ({"seed": 1, "layout": "odd"}, "`layout` must be one of contiguous, strided"),
        ({"seed": 1, "absent": "x"}, "`absent`"), ({"seed": 1, "absent": None}, "`absent`"),
        ({"seed": 1, "absent": 3}, "`absent`"), ({"seed": 1, "absent": [3]}, "`absent`"), ({"seed": 1, "x": 2}, "'x'"),
        ({"seed": 1, "family": 3}, "`family`"), ({"seed": 1, "family": "nope"}, "`family` must be one of .*'nope'"),
        ({"seed": 1, "structure": "nope"}, "`structure` must be one of mixed, .*'nope'"),
        ({"seed": 1, "scalars": []}, "`scalars` must"), ({"seed": 1, "scalars": None}, "`scalars` must"),
        ({"seed": 1, "scalars": {"c": [1]}}, "`scalars.c` must be a number"),
    ],
)  # fmt: skip
def test_a_broken_recipe_is_refused(record, told):
    with pytest.raises(ValueError, match=f"recipe: .*{told}"):
        Recipe.from_json(record)
    workload = Workload("w7", {}, {}, extra={"recipe": record})
    with pytest.raises(BadData, match=f"workload w7: recipe: .*{told}.*; correct it"):
        Cases(SimpleNamespace(definition=RAGGED), ()).first(workload)


def test_a_scalar_that_is_null_in_a_recipe_has_its_usual_value():
    assert Recipe.from_json({"seed": 1, "scalars": {"c": None, "d": 2}}) == Recipe(1, scalars={"d": 2})


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_recipes_name_structures_that_there_are(definition):
    assert set(grid_of(definition).structures) <= set(STRUCTURES)


@pytest.mark.parametrize("definition", [PAGED_DECODE, QUANTISED, SAMPLING, DELTA], ids=lambda d: d.name)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_variants_change_contents_and_nothing_else(definition, kind, layout):
    axes, _ = edge_cases(definition)[0]
    before = make_inputs(definition, axes, Recipe(1, layout=layout))
    copy = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in before.items()}
    after = variant(before, definition, axes, kind, torch.Generator().manual_seed(3))
    assert list(after) == list(before)
    every = 0
    for name, value in before.items():
        if not isinstance(value, torch.Tensor):
            assert after[name] == value
            continue
        assert torch.equal(value.float(), copy[name].float()), "the old inputs stay"
        assert after[name].stride() == value.stride()
        assert after[name].dtype == value.dtype
        moved = int((after[name].float() != value.float()).sum())
        every += moved
        if kind == ONE:
            continue
        if not value.is_floating_point():
            assert moved == 0
        elif kind == "permuted" and value.dim() > 1:
            assert moved == 2
        elif value.numel() > 3:
            assert moved > value.numel() // 3
        flat = value.float().flatten(), after[name].float().flatten()
        if kind == "same_ends":
            for place in (0, len(flat[0]) // 2, len(flat[0]) - 1):
                assert flat[0][place] == flat[1][place]
    assert kind != ONE or every == 1


def test_variants_keep_what_they_are_told_to_keep_and_are_finite():
    axes, _ = edge_cases(PAGED_DECODE)[0]
    before = make_inputs(PAGED_DECODE, axes, Recipe(1, structure="stale_nan"))
    after = variant(before, PAGED_DECODE, axes, "fresh", torch.Generator().manual_seed(0), keep=("q",))
    assert after["k_cache"].isfinite().all()
    assert after["q"] is before["q"]
    with pytest.raises(ValueError, match="odd"):
        variant(before, PAGED_DECODE, axes, "odd", torch.Generator())


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(ALL), st.integers(0, 1000))
def test_every_simpler_case_is_valid_and_simpler(definition, seed):
    edges = edge_cases(definition, max_elements=1 << 11)
    case = edges[seed % len(edges)]
    for sizes, recipe in list(simpler(definition, *case))[:12]:
        make_inputs(definition, sizes, recipe)
        assert (sizes, recipe) != case


def test_all_combinations_of_switches_are_tried_with_other_values_and_sizes():
    switched = define(
        "scan", axes(rows=None, w=6),
        {"x": tensor("rows w"), "reverse": tensor(None, "int32", description="0 or 1"),
         "exclusive": tensor(None, "int32", description="0 or 1")},
        {"y": tensor("rows w")}, "", "reverse in (0, 1)", "exclusive in (0, 1)",
    )  # fmt: skip
    cases = edge_cases(switched)
    assert not any(recipe.scalars for _, recipe in cases[:7]), "where calls are slow little else is tried"
    inputs = [make_inputs(switched, sizes, recipe) for sizes, recipe in cases]
    combined = {(each["reverse"], each["exclusive"]) for each in inputs}
    assert combined == {(a, b) for a in (0, 1) for b in (0, 1)}
    telling = [number for number, (_, recipe) in enumerate(cases) if recipe.family != "normal"]
    long = [number for number, (sizes, _) in enumerate(cases) if sizes["rows"] > 100]
    assert {(inputs[n]["reverse"], inputs[n]["exclusive"]) for n in telling} == combined
    assert {inputs[n]["reverse"] for n in long} == {inputs[n]["exclusive"] for n in long} == {0, 1}
