"""Entries that point at nothing, rows in any order, and the ids at both ends: what a contract allows is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.structure import structures
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import PAGED_DECODE, ROUTED, SLOTS, TABLE, axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"


def losses(words="", *constraints, dtype="int64", **scalars):
    inputs = {"logits": tensor("n vocab"), "labels": tensor("n", dtype, description=words), **scalars}
    return define("loss", axes(n=None, vocab=50), inputs, {"y": tensor("n")}, NOTHING, *constraints)


def labels_of(definition, n=12, seeds=range(15), structure="mixed"):
    return [make_inputs(definition, {"n": n}, Recipe(seed, structure=structure))["labels"] for seed in seeds]


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        ("bool(((labels == -1) | ((labels >= 0) & (labels < vocab))).all())", -1),
        ("bool(((labels == -100) | ((labels >= 0) & (labels < vocab))).all())", -100),
        ("(((0 <= labels) & (labels < vocab)) | (-100 == labels)).all()", -100),
        ("torch.all((labels == 255) | (labels < 50))", 255),
        ("bool(((labels == ignore_index) | ((labels >= 0) & (labels < vocab))).all())", -100),
        ("int(labels.min()) >= -1 and int(labels.max()) < vocab", -1),
    ],
)
def test_a_value_that_a_constraint_allows_besides_a_range_is_drawn(constraint, value):
    definition = losses("", constraint, ignore_index=tensor(None, "int64", description="Not counted; default -100."))
    drawn = labels_of(definition)
    counts = {int((each == value).sum()) for each in drawn}
    assert {0, 1} < counts
    assert max(counts) < 12
    rest = torch.cat(drawn)
    rest = rest[rest != value]
    assert (int(rest.min()), int(rest.max())) == (0, 49)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("class of each row, or -100 for ignored rows", {-100}),
        ("-1 pads the batch, -100 is ignored", {-1, -100}),
        ("(-100: ignored)", {-100}),
        ("the offset, -5 to 5", set()),
        ("a number between -128 and 127", set()),
        ("at least -7", set()),
        ("scaled by 1e-5 or -0.5", set()),
        ("class along axis -2", set()),
        ("class of each row, negative for padding", {-1, -2}),
        ("a row with an entry below 0 is skipped", {-1, -2}),
        ("non-negative; padding comes last", set()),
        ("never negative, not even where a row is padding", set()),
        ("may be negative. Padding is zero.", set()),
        ("Negative ids are invalid.", set()),
        ("padded with 0 at the end; they must not be negative", set()),
        ("cannot be negative, no row is skipped", set()),
        ("negative samples, padded by repeating the last one", set()),
        ("Gathers rows by ids, skipping negative values of logits.", set()),
        ("0 for padding; nothing below 0", set()),
        ("tokens whose logit is negative are dropped later", set()),
        ("a negative id means padding, -1 as a rule", {-1}),
    ],
)
def test_negative_numbers_in_words_mark_unused_entries(words, values):
    drawn = torch.cat(labels_of(losses(words), 30))
    assert set(drawn[drawn < 0].tolist()) == values


@pytest.mark.parametrize(
    ("constraint", "drawn"),
    [
        ("bool(((labels == -1) | (labels >= 0)).all())", {-1}),
        ("bool((labels >= 0).all())", set()),
        ("int(labels.max()) < vocab and not bool((labels < 0).any())", set()),
        ("bool((labels < 0).sum() == 0)", set()),
        ("bool((labels == -1).all()) or bool((labels >= 0).all())", set()),
        ("n == 0 or int(labels.min()) >= -100", {-1, -100}),
    ],
)
def test_what_words_allow_is_not_drawn_where_a_constraint_forbids_it(constraint, drawn):
    labels = torch.cat(labels_of(losses("-1 for padding, -100 for ignored rows", constraint), 30))
    assert set(labels[labels < 0].tolist()) == drawn


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("int(labels[labels >= 0].unique().numel()) <= n", {-1, -2}),
        ("int((labels > -1).sum()) <= n", {-1, -2}),
        ("int((0 <= labels).sum()) <= n", {-1, -2}),
        ("torch.count_nonzero(labels != -7) <= n", {-7}),
        ("int((labels != 3).sum()) <= n", set()),
        ("int((labels >= 1).sum()) <= n", set()),
        ("bool((labels >= 0).all())", set()),
        ("int((labels >= 0).sum()) == n", set()),
    ],
)
def test_entries_that_a_constraint_leaves_out_occur(constraint, values):
    drawn = torch.cat(labels_of(losses("", constraint), 30))
    assert set(drawn[drawn < 0].tolist()) == values


def test_a_sentence_about_an_input_counts_wherever_it_stands():
    definition = replace(losses(), description="Labels say the class; a negative one of labels is padding.")
    drawn = torch.cat(labels_of(definition, 30))
    assert set(drawn[drawn < 0].tolist()) == {-1, -2}
    other = replace(losses(), description="A negative shift is invalid. The labels say the class.")
    assert int(torch.cat(labels_of(other, 30)).min()) >= 0


def test_values_that_an_unsigned_dtype_lacks_are_not_drawn():
    assert int(torch.cat(labels_of(losses("or -1", dtype="uint8"), 30)).max()) < 50


def test_bounds_behind_a_condition_on_sizes_hold():
    definition = define(
        "gather", axes(n=None), {"x": tensor("n", "int32")}, {"y": tensor("n")}, NOTHING,
        "n == 0 or (int(x.min()) >= 3 and int(x.max()) < 7)",
    )  # fmt: skip
    assert set(make_inputs(definition, {"n": 200}, Recipe(0))["x"].tolist()) == {3, 4, 5, 6}


def test_of_values_alone_only_those_are_drawn():
    definition = define(
        "flags", axes(n=None), {"x": tensor("n", "int32")}, {"y": tensor("n")}, NOTHING,
        "bool(((x == 4) | (x == 9)).all())",
    )  # fmt: skip
    drawn = torch.cat([make_inputs(definition, {"n": 9}, Recipe(seed))["x"] for seed in range(9)])
    assert set(drawn.tolist()) == {4, 9}


def slots_of(sizes, seeds, structure="mixed"):
    made = (make_inputs(SLOTS, sizes, Recipe(seed, structure=structure)) for seed in seeds)
    return [inputs["state_indices"].tolist() for inputs in made]


def test_batches_have_no_padding_some_of_it_or_nothing_else():
    sizes = {"batch_size": 6, "pool_size": 9}
    assert {ids.count(-1) for ids in slots_of(sizes, range(15))} == {0, 1, 2}
    assert structures(contract_of(SLOTS), plan_of(contract_of(SLOTS)))[-2:] == ("padded_tail", "all_padded")
    for ids in slots_of(sizes, range(15), "padded_tail"):
        used = 6 - ids.count(-1)
        assert 3 <= used < 6
        assert ids[used:] == [-1] * (6 - used)
    assert slots_of(sizes, [3], "all_padded") == [[-1] * 6]
    assert "all_padded" not in grid_of(PAGED_DECODE).structures
    sizes = [sizes["batch_size"] for sizes, recipe in edge_cases(SLOTS) if recipe.structure == "all_padded"]
    assert min(sizes) == 1 < max(sizes)


@given(st.integers(0, 9999), st.integers(1, 12), st.integers(0, 20))
def test_slots_are_distinct_and_not_the_identity(seed, batch, more):
    (ids,) = slots_of({"batch_size": batch, "pool_size": batch + more}, [seed])
    used = [n for n in ids if n != -1]
    assert used
    assert len(set(used)) == len(used)
    assert all(0 <= n < batch + more for n in used)
    assert batch + more == 1 or ids != list(range(batch))


def test_slots_without_padding_now_and_then_look_like_a_range_by_their_ends():
    drawn = [ids for ids in slots_of({"batch_size": 6, "pool_size": 40}, range(100)) if -1 not in ids]
    alike = [ids for ids in drawn if ids[-1] - ids[0] == 5 and max(ids) - min(ids) == 5]
    assert 3 < len(alike) < len(drawn) - 3
    assert all(ids != sorted(ids) for ids in alike)


def test_tables_hold_the_padding_that_their_constraints_allow():
    def table(words, *constraints):
        inputs = {**TABLE.inputs, "block_table": tensor("batch_size max_blocks", "int32", description=words)}
        return define("table", TABLE.axes, inputs, TABLE.outputs, "", *TABLE.constraints, *constraints)

    sizes = {"batch_size": 5, "num_blocks": 40, "max_blocks": 6}
    forbidden = table("Blocks; -1 was replaced before.", "bool((block_table >= 0).all())")
    stated = table("Blocks.", "bool(((block_table == -2) | (block_table >= 0)).all())")
    for definition, least in ((forbidden, 0), (stated, -2)):
        assert min(int(make_inputs(definition, sizes, Recipe(n))["block_table"].min()) for n in range(5)) == least


def append(words="", *constraints, positions="int32"):
    inputs = {
        "x": tensor("nnz h"), "batch_indices": tensor("nnz", "int32", description=words),
        "positions": tensor("nnz", positions), "cache": tensor("pages page_size h"),
        "kv_indices": tensor("num_kv_indices", "int32"), "kv_indptr": tensor("len_indptr", "int32"),
        "kv_last_page_len": tensor("batch", "int32"),
    }  # fmt: skip
    sizes = axes(nnz=None, batch=None, pages=None, num_kv_indices=None, len_indptr=None, h=4, page_size=4)
    rules = ("len_indptr == batch + 1", "num_kv_indices == kv_indptr[-1].item()", *constraints)
    return define("kv_cache_append", sizes, inputs, {"y": tensor("pages page_size h")}, NOTHING, *rules)


def rows_of(definition):
    sizes = {"nnz": 8, "batch": 4, "pages": 20, "num_kv_indices": 13, "len_indptr": 5}
    for seed in range(20):
        inputs = make_inputs(definition, sizes, Recipe(seed, structure="uniform"))
        rows, places = inputs["batch_indices"].tolist(), inputs["positions"].tolist()
        assert len(set(zip(rows, places, strict=True))) == 8
        lengths = (inputs["kv_indptr"].diff() - 1) * 4 + inputs["kv_last_page_len"]
        assert all(place < lengths[row] for row, place in zip(rows, places, strict=True))
        yield rows


@pytest.mark.parametrize(
    ("definition", "orders"),
    [
        (append(), {True, False}),
        (append("Sequence of each token; tokens come in any order."), {True, False}),
        (append("Sequence of each token, sorted."), {True}),
        (append("Rows in ascending order."), {True}),
        (append("", "bool((batch_indices[1:] >= batch_indices[:-1]).all())"), {True}),
        (append("", "bool((batch_indices.diff() >= 0).all())"), {True}),
    ],
)
def test_rows_beside_positions_come_unsorted_too_unless_the_contract_says_sorted(definition, orders):
    assert {rows == sorted(rows) for rows in rows_of(definition)} == orders


@pytest.mark.parametrize("written", [True, False], ids=["appended", "read"])
def test_what_appended_rows_replace_holds_anything(written):
    """Where nothing is appended, ids and positions may name what is read."""
    definition, sizes = append(), {"nnz": 8, "batch": 4, "pages": 20, "num_kv_indices": 13, "len_indptr": 5}
    if not written:
        inputs = {**definition.inputs, "x": tensor("batch h")}
        definition = replace(definition, inputs=inputs)
    for structure, dead in (("stale_big", 1000), ("mixed", 0)):
        made = make_inputs(definition, sizes, Recipe(1, structure=structure))
        for row, place in zip(made["batch_indices"].tolist(), made["positions"].tolist(), strict=True):
            page = made["kv_indices"][made["kv_indptr"][row] + place // 4]
            assert bool((made["cache"][page, place % 4] > 1000).all()) is bool(dead and written)


def test_the_first_and_the_last_id_occur():
    labels = labels_of(losses(), 4, range(20))
    assert {(int(each.min()) == 0, int(each.max()) == 49) for each in labels} >= {(True, True), (True, False)}
    wide = define("routed", {**ROUTED.axes, **axes(num_experts=256)}, ROUTED.inputs, ROUTED.outputs, NOTHING)
    for structure in ("mixed", "one_long"):
        ids = [make_inputs(wide, {"num_tokens": 3}, Recipe(n, structure=structure))["topk_ids"] for n in range(20)]
        assert {0, 255} <= set(torch.cat(ids).flatten().tolist())
        assert all((each[:, 0] != each[:, 1]).all() for each in ids)


def test_experts_of_a_token_may_be_elsewhere():
    ids = tensor("num_tokens top_k", "int32", description="Experts of each token, -1 where another rank has it.")
    inputs = {**ROUTED.inputs, "topk_ids": ids}
    definition = define("routed", ROUTED.axes, inputs, ROUTED.outputs, NOTHING)
    drawn = torch.cat([make_inputs(definition, {"num_tokens": 6}, Recipe(seed))["topk_ids"] for seed in range(9)])
    assert set(drawn.flatten().tolist()) == {-1, 0, 1, 2, 3, 4, 5}


FINALIZE = define(
    "finalize", axes(n=None, rows=None, k=3),
    {"x": tensor("rows k"), "row_of_slot": tensor("n k", "int32", description="-1 for what was dropped")},
    {"y": tensor("n k")}, NOTHING,
    "row_of_slot.numel() == 0 or (int(row_of_slot.min()) >= -1 and int(row_of_slot.max()) < rows)",
    "row_of_slot[row_of_slot >= 0].unique().numel() == int((row_of_slot >= 0).sum())",
)  # fmt: skip


def test_bounds_hold_of_ids_that_may_be_none_at_all():
    """Of `none or (least and most)` the first says nothing of values."""
    drawn = [make_inputs(FINALIZE, {"n": 4, "rows": rows}, Recipe(seed))["row_of_slot"]
             for seed in range(20) for rows in (12, 7, 40)]  # fmt: skip
    assert {-1, 6, 11} <= set(torch.cat(drawn).flatten().tolist())


def test_there_may_be_nothing_to_point_at_where_all_ids_may_be_unused():
    cases = [(sizes, recipe) for sizes, recipe in edge_cases(FINALIZE) if sizes["rows"] == 0 and sizes["n"]]
    assert cases
    assert all(bool((make_inputs(FINALIZE, *case)["row_of_slot"] == -1).all()) for case in cases)


def test_rows_grow_beside_a_pool_that_takes_the_budget():
    definition = define(
        "states", axes(n=None, slots=None, d=256), {"x": tensor("n"), "pool": tensor("slots d d"),
        "state_indices": tensor("n", "int32", description="slot of each row, all distinct")},
        {"y": tensor("n")}, NOTHING,
    )  # fmt: skip
    sizes, _ = edge_cases(definition, max_elements=1 << 18)[0]
    assert sizes["slots"] <= 4
    assert sizes["n"] > 1


def test_rows_of_no_request_are_bound_by_nothing():
    """Of `(request < 0) | (position < room of the request)` the first marks padding, rather than bounding all."""
    definition = define(
        "append", axes(n=None, b=None, c=None, pages=None, refs=None, page_size=4),
        {"x": tensor("n"), "req_indices": tensor("n", "int32"), "positions": tensor("n", "int32"),
         "cache": tensor("pages page_size"), "page_ids": tensor("refs", "int32"),
         "page_indptr": tensor("c", "int32"), "last_page_len": tensor("b", "int32")},
        {"y": tensor("n")}, NOTHING, "c == b + 1", "refs == page_indptr[-1].item()",
        "bool((req_indices >= -1).all()) and bool((req_indices < b).all())", "bool((positions >= 0).all())",
        "bool(((req_indices < 0) | (positions < ((page_indptr[1:] - page_indptr[:-1] - 1) * page_size + last_page_len)"
        "[req_indices.clamp(min=0).long()])).all())",
        "(req_indices.long() * 1000 + positions)[req_indices >= 0].unique().numel() == int((req_indices >= 0).sum())",
    )  # fmt: skip
    drawn = [make_inputs(definition, {"n": n, "b": 3, "c": 4, "pages": 9, "refs": 5}, Recipe(seed))
             for seed in range(20) for n in (1, 6, 30)]  # fmt: skip
    requests = torch.cat([each["req_indices"] for each in drawn])
    assert set(requests.tolist()) == {-1, 0, 1, 2}
    assert len(torch.unique(torch.cat([each["positions"] for each in drawn]))) > 4


def test_now_and_then_a_row_has_no_entry_that_is_used():
    """As of a token that no expert takes; also in a batch of which others have some."""
    inputs = {"rows": tensor("n h"), "row_of_slot": tensor("tokens k", "int32", description="row, or -1 for none")}
    sizes, code = axes(n=None, tokens=None, h=4, k=3), "def run(rows, row_of_slot):\n    return None\n"
    definition = define("combine", sizes, inputs, {"y": tensor("tokens h")}, code)
    drawn = [make_inputs(definition, {"n": 9, "tokens": 6}, Recipe(seed))["row_of_slot"] for seed in range(20)]
    without = [(each < 0).all(dim=1) for each in drawn]
    assert 2 <= sum(bool(each.any()) for each in without) <= 8
    assert not any(bool(each.all()) for each in without)
