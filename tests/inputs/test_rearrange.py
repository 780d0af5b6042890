"""Other index tensors for as much work: ids one to one, sequences in another order, and nothing that is tied."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.rearrange import rearranged
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.strategies import case_strategy
from tests.inputs.contracts import ALL, RAGGED, axes, call, define, finite, tensor

PAGED = define(
    "paged", axes(batch=None, len_indptr=None, n=None, pages=None, page=4, d=2),
    {"q": tensor("batch d"), "cache": tensor("pages page d"), "kv_indptr": tensor("len_indptr", "int32"),
     "kv_indices": tensor("n", "int32"), "kv_last_page_len": tensor("batch", "int32")},
    {"y": tensor("batch d")}, "", "len_indptr == batch + 1", "n == kv_indptr[-1].item()",
)  # fmt: skip
PAGES = {"batch": 4, "len_indptr": 5, "n": 12, "pages": 20}
SLOTS = define(
    "slots", axes(n=None, slots=None, d=2),
    {"pool": tensor("slots d"), "read": tensor("n", "int32", description="slot; -1 pads"),
     "slot_ids": tensor("n", "int32")},
    {"y": tensor("n d")}, "",
)  # fmt: skip
SORTED = define(
    "sorted", axes(n=None, rows=None, d=2), {"x": tensor("rows d"), "row_indices": tensor("n", "int32")},
    {"y": tensor("n d")}, "", "bool((row_indices[1:] >= row_indices[:-1]).all())", "int(row_indices.max()) < rows",
)  # fmt: skip


def test_lengths_of_last_pages_change_places_for_some_seeds_with_the_same_pointers():
    inputs = make_inputs(PAGED, PAGES, Recipe(1))
    last = inputs["kv_last_page_len"]
    changed = []
    for seed in range(20):
        new = rearranged(PAGED, PAGES, inputs, seed)
        assert "kv_indices" in new
        assert "kv_indptr" not in new
        changed += [new["kv_last_page_len"]] if "kv_last_page_len" in new else []
        assert "kv_last_page_len" not in rearranged(PAGED, PAGES, inputs, seed, shift=True)
    assert 4 < len(changed) < 16
    for each in changed:
        assert sorted(each.tolist()) == sorted(last.tolist())
        assert torch.equal(each == 0, last == 0), "who has no page has no tokens"


def both(definition, sizes, made=None, **options):
    inputs = make_inputs(definition, sizes, Recipe(1, **(made or {})))
    return inputs, rearranged(definition, sizes, inputs, 3, **options)


def lengths(values):
    return Counter(values.diff().tolist())


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 63), shift=st.booleans())
def test_whatever_is_rearranged_satisfies_the_contract(data, seed, shift):
    definition = data.draw(st.sampled_from(ALL))
    sizes, recipe = data.draw(case_strategy(definition, max_elements=1 << 11))
    try:
        inputs = make_inputs(definition, sizes, Recipe(recipe.seed, structure="mixed"))
    except InputsError:
        return
    new = rearranged(definition, sizes, inputs, seed, shift=shift)
    every = {**inputs, **new}
    for name, value in new.items():
        assert (value.shape, value.dtype) == (inputs[name].shape, inputs[name].dtype)
        assert not torch.equal(value, inputs[name])
    assert [rule.text for rule in contract_of(definition).reading.data if rule.fails({**sizes, **every})] == []
    assert finite(call(definition, every)) or not finite(call(definition, inputs))


def test_ids_point_elsewhere_one_to_one_and_lengths_stay():
    inputs, new = both(PAGED, PAGES)
    assert new.keys() == {"kv_indices"}
    old, other = inputs["kv_indices"], new["kv_indices"]
    assert len(set(other.tolist())) == 12
    assert [i for i in range(12) if old[i] == other[i]] == [0, 6, 11], "the ends look as before"


def test_sequences_change_places_with_all_their_lengths():
    attention = define(
        "ragged", axes(len_indptr=None, total_q=None, total_kv=None, d=2),
        {"q": tensor("total_q d"), "k": tensor("total_kv d"), "qo_indptr": tensor("len_indptr", "int32"),
         "kv_indptr": tensor("len_indptr", "int32")},
        {"y": tensor("total_q d")}, "", "total_q == qo_indptr[-1].item()", "total_kv == kv_indptr[-1].item()",
    )  # fmt: skip
    inputs, new = both(attention, {"len_indptr": 6, "total_q": 11, "total_kv": 27})
    assert new.keys() == {"qo_indptr", "kv_indptr"}
    pairs = [
        Counter(zip(each["qo_indptr"].diff().tolist(), each["kv_indptr"].diff().tolist(), strict=True))
        for each in (inputs, new)
    ]
    assert pairs[0] == pairs[1]


def test_shifted_ids_stay_neighbours_and_sequences_stay():
    inputs, new = both(PAGED, PAGES, shift=True)
    assert new.keys() == {"kv_indices"}
    moved = (new["kv_indices"] - inputs["kv_indices"]) % PAGES["pages"]
    assert len(set(moved.tolist())) == 1
    assert int(moved[0]) != 0


@pytest.mark.parametrize("shift", [False, True])
def test_where_there_are_no_ids_sequences_change_places(shift):
    sizes = {"n": 4, "total": 9, "len_indptr": 5}
    inputs, new = both(RAGGED, sizes, shift=shift)
    assert lengths(inputs["indptr"]) == lengths(new["indptr"])
    assert new["indptr"][-1] == 9


def test_a_single_id_points_elsewhere_too():
    _, new = both(PAGED, {"batch": 1, "len_indptr": 2, "n": 1, "pages": 20})
    assert new.keys() == {"kv_indices"}


def test_what_is_unused_stays_so_and_slots_of_one_pool_stay_apart():
    inputs, new = both(SLOTS, {"n": 6, "slots": 30}, {"structure": "padded_tail"})
    assert new.keys() == {"read", "slot_ids"}
    assert torch.equal(new["read"] < 0, inputs["read"] < 0)
    assert int((inputs["read"] < 0).sum()) > 0
    valid = [*new["read"][new["read"] >= 0].tolist(), *new["slot_ids"].tolist()]
    old = [*inputs["read"][inputs["read"] >= 0].tolist(), *inputs["slot_ids"].tolist()]
    assert len(set(valid)) == len(set(old))


def test_what_has_to_rise_and_what_has_one_choice_stays():
    assert both(SORTED, {"n": 6, "rows": 30})[1] == {}
    assert both(PAGED, {"batch": 1, "len_indptr": 2, "n": 1, "pages": 1})[1] == {}


def test_only_pools_are_pointed_at_elsewhere_by_what_is_stored():
    looked_up = define(
        "embedding", axes(n=None, vocab_size=30, d=2),
        {"input_ids": tensor("n", "int32"), "weight": tensor("vocab_size d")}, {"y": tensor("n d")}, "",
    )  # fmt: skip
    assert both(looked_up, {"n": 6})[1].keys() == {"input_ids"}
    assert both(looked_up, {"n": 6}, stored={"input_ids"})[1] == {}
    assert both(PAGED, PAGES, stored={"kv_indices"})[1].keys() == {"kv_indices"}


def test_slots_beside_pages_stay_for_they_may_be_those_of_the_pages():
    append = define(
        "append", axes(batch=None, len_indptr=None, n=None, pages=None, page=4, d=2),
        {"cache": tensor("pages page d"), "kv_indptr": tensor("len_indptr", "int32"),
         "kv_indices": tensor("n", "int32"),
         "slot_mapping": tensor("batch", "int32", description="slot of the new token")},
        {"y": tensor("batch d")}, "", "len_indptr == batch + 1", "n == kv_indptr[-1].item()",
    )  # fmt: skip
    assert both(append, PAGES)[1] == {}


def test_strides_stay():
    inputs, new = both(PAGED, PAGES, {"layout": "strided"})
    assert new["kv_indices"].stride() == inputs["kv_indices"].stride()
