"""One value that is another one: nothing else moves, the contract holds, and the answer is plainly another."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.one_changed import one_id
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.variant import ONE, variant
from tests.inputs.contracts import ALL, PAGED_DECODE, SAMPLING, axes, call, define, tensor

SEEDS = range(8)
PLAIN = 0.02  # of the root mean square of an output: far past what rounding does to it


def drawn(definition):
    sizes = next(sizes for sizes, _ in edge_cases(definition, max_elements=1 << 16) if all(sizes.values()))
    for seed in SEEDS:
        try:
            inputs = make_inputs(definition, sizes, Recipe(seed))
        except InputsError:
            continue
        yield seed, sizes, inputs


def moved(before, after):
    pairs = [(after[name], value) for name, value in before.items() if isinstance(value, torch.Tensor)]
    return sum(int((one.float() != two.float()).sum()) for one, two in pairs)


def shows(definition, before, after):
    outputs = []
    for inputs in (before, after):
        copy = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
        outputs.append([each.double().nan_to_num(0, 0, 0) for each in call(definition, copy)])
    pairs = zip(*outputs, strict=True)
    return any(float((one - two).abs().max()) > PLAIN * float(one.square().mean().sqrt()) for one, two in pairs)


@pytest.mark.parametrize("definition", [each for each in ALL if each is not SAMPLING], ids=lambda d: d.name)
def test_a_value_that_changes_alone_mostly_shows_in_the_answer(definition):
    seen = []
    for seed, sizes, inputs in drawn(definition):
        other = variant(inputs, definition, sizes, ONE, torch.Generator().manual_seed(seed))
        assert moved(inputs, other) == 1
        assert [rule.text for rule in contract_of(definition).reading.data if rule.fails({**sizes, **other})] == []
        seen.append(shows(definition, inputs, other))
    assert sum(seen) >= len(seen) / 2


@pytest.mark.parametrize("definition", ALL, ids=lambda d: d.name)
def test_an_id_that_changes_alone_satisfies_the_contract_and_shows(definition):
    seen = []
    for seed, sizes, inputs in drawn(definition):
        changed = one_id(definition, sizes, inputs, seed)
        other = {**inputs, **changed}
        if changed:
            assert moved(inputs, other) in {1, 2}
            assert [rule.text for rule in contract_of(definition).reading.data if rule.fails({**sizes, **other})] == []
            seen.append(shows(definition, inputs, other))
    assert sum(seen) >= len(seen) / 2


def test_a_number_that_points_at_nothing_known_changes_alone():
    inputs = {"x": tensor("rows h"), "m": tensor("rows h", "int32", description="number")}
    definition = define("numbers", axes(rows=None, h=4), inputs, {"y": tensor("rows h")}, "")
    sizes = {"rows": 9, "h": 4}
    drawn = make_inputs(definition, sizes, Recipe(3))
    for seed in range(8):
        (changed,) = one_id(definition, sizes, drawn, seed).values()
        assert int((changed != drawn["m"]).sum()) in {1, 2}


def test_ids_of_pages_stay_distinct_and_change_places_where_none_is_free():
    sizes = {"batch": 2, "len_indptr": 3, "num_kv_indices": 6, "heads": 4, "kv_heads": 2, "d": 16, "page_size": 4}
    for pages, differ in ((9, 1), (6, 2)):
        before = make_inputs(PAGED_DECODE, {**sizes, "pages": pages}, Recipe(1))
        after = one_id(PAGED_DECODE, {**sizes, "pages": pages}, before, 5)["kv_indices"]
        assert int((after != before["kv_indices"]).sum()) == differ
        assert len(set(after.tolist())) == 6


def test_rows_that_are_looked_up_are_the_ones_that_change():
    table = define(
        "embedding", axes(n=None, vocab_size=1000, d=2),
        {"input_ids": tensor("n", "int32"), "weight": tensor("vocab_size d")}, {"y": tensor("n d")},
        "def run(input_ids, weight):\n    return weight[input_ids.long()]",
    )  # fmt: skip
    inputs = make_inputs(table, {"n": 3}, Recipe(2))
    for seed in SEEDS:
        other = variant(inputs, table, {"n": 3}, ONE, torch.Generator().manual_seed(seed))["weight"]
        (row,) = (other != inputs["weight"]).any(1).nonzero().flatten().tolist()
        assert row in inputs["input_ids"].tolist()


def test_what_one_value_of_a_row_decides_stays():
    sizes, _ = edge_cases(SAMPLING)[0]
    inputs = make_inputs(SAMPLING, sizes, Recipe(1))
    for seed in SEEDS:
        other = variant(inputs, SAMPLING, sizes, ONE, torch.Generator().manual_seed(seed))
        assert torch.equal(other["probs"], inputs["probs"])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("family", ["zero_rows", "huge", "tiny", "big_row"])
def test_it_is_another_finite_one_in_every_dtype_and_family(dtype, family):
    rows = define("rows", axes(n=None, w=8), {"x": tensor("n w", dtype)}, {"y": tensor("n w", dtype)}, "")
    for seed in SEEDS:
        before = make_inputs(rows, {"n": 5}, Recipe(seed, family=family))
        after = variant(before, rows, {"n": 5}, ONE, torch.Generator().manual_seed(seed))
        assert after["x"].float().isfinite().all()
        assert moved(before, after) == 1
