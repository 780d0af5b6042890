"""Contracts of honest definitions that leave little room, or say in words what else an index may hold."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import is_packed
from pytest_flashinfer.inputs.floats.values import family_names
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.axes import output_shapes
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"


def made(definition, sizes, recipes=range(12), **recipe):
    return [make_inputs(definition, sizes, Recipe(seed, **recipe)) for seed in recipes]


def embedding(description, name="token_ids", **others):
    inputs = {"table": tensor("vocab h"), name: tensor("n", "int64", description=description), **others}
    return define("embedding", axes(n=None, vocab=50, h=4), inputs, {"y": tensor("n h")}, NOTHING)


@pytest.mark.parametrize(
    ("words", "padded"),
    [
        ("Token of each row, or -1 for none.", True),
        ("-1 marks padding", True),
        ("in [-1, vocab)", True),
        ("in the range [0, vocab-1]", False),
        ("at most (vocab)-1", False),
        ("an index along dim -1", False),
        ("", False),
    ],
)
def test_minus_one_is_drawn_where_the_description_means_padding(words, padded):
    definition = embedding(words)
    ids = torch.cat([inputs["token_ids"] for inputs in made(definition, {"n": 40})])
    assert bool((ids == -1).any()) == padded
    assert int(ids.max()) == 49
    assert int(ids.min()) >= -1


def test_minus_one_is_not_drawn_where_a_constraint_forbids_it():
    ids = tensor("n", "int64", description="Token of each row; -1 was replaced before.")
    definition = define(
        "embedding", axes(n=None, vocab=50, h=4), {"table": tensor("vocab h"), "token_ids": ids}, {"y": tensor("n h")},
        NOTHING, "token_ids.min().item() >= 0",
    )  # fmt: skip
    assert all(int(inputs["token_ids"].min()) >= 0 for inputs in made(definition, {"n": 40}))


def test_a_value_to_ignore_is_among_the_labels_that_name_it():
    ignore = tensor(None, "int64", description="Label of rows that do not count; default -100.")
    definition = embedding("Labels; rows with ignore_index do not count.", "labels", ignore_index=ignore)
    labels = torch.cat([inputs["labels"] for inputs in made(definition, {"n": 40})])
    assert set(labels.tolist()) & {-100}
    other = make_inputs(definition, {"n": 40}, Recipe(5, scalars={"ignore_index": 0}))
    assert -100 not in other["labels"].tolist()
    assert other["labels"].tolist().count(0) > 2
    assert grid_of(definition).scalars["ignore_index"] == (0,)


def test_rows_that_each_token_points_to_have_the_shape_of_the_tokens():
    ids = tensor("tokens k", "int32", description="Row of y for each choice of a token, or -1.")
    definition = define(
        "finalize", axes(tokens=None, rows=None, k=2, h=4), {"y": tensor("rows h"), "row_ids": ids},
        {"out": tensor("tokens h")}, NOTHING,
    )  # fmt: skip
    for inputs in made(definition, {"tokens": 7, "rows": 9}):
        assert inputs["row_ids"].shape == (7, 2)
        assert int(inputs["row_ids"].min()) >= -1
        assert int(inputs["row_ids"].max()) < 9


def test_indices_point_into_the_axis_that_their_description_names():
    ids = tensor("segments", "int32", description="Weight of each segment, in [0, num_weights).")
    inputs = {"x": tensor("num_rows h"), "weights": tensor("num_weights h"), "weight_indices": ids}
    definition = define(
        "lora", axes(num_rows=None, num_weights=None, segments=None, h=4), inputs, {"y": tensor("num_rows h")}, NOTHING
    )
    for values in made(definition, {"num_rows": 40, "num_weights": 3, "segments": 6}):
        assert int(values["weight_indices"].max()) < 3


def test_indices_that_nothing_names_point_at_what_no_output_has():
    inputs = {"x": tensor("rows h"), "bank": tensor("entries h"), "which": tensor("rows", "int32")}
    definition = define("gather", axes(rows=None, entries=None, h=4), inputs, {"y": tensor("rows h")}, NOTHING)
    for values in made(definition, {"rows": 30, "entries": 4}):
        assert int(values["which"].max()) < 4


def test_bytes_stay_within_their_constraint():
    inputs = {"q": tensor("k n", "uint8"), "zeros": tensor("g n", "uint8")}
    definition = define(
        "dequant", axes(k=64, g=2, n=None), inputs, {"w": tensor("k n")}, NOTHING, "zeros.max().item() <= 15"
    )
    zeros = torch.cat([values["zeros"].flatten() for values in made(definition, {"n": 9})])
    assert sorted(set(zeros.tolist())) == list(range(16))


def test_the_longest_segment_that_is_allowed_can_hold_the_total():
    inputs = {"x": tensor("total h"), "padded": tensor("batch L h"), "cu_seqlens": tensor("len_cu", "int32")}
    definition = define(
        "unpad", axes(batch=None, total=None, len_cu=None, L=None, h=4), inputs, {"y": tensor("total h")}, NOTHING,
        "len_cu == batch + 1", "total == cu_seqlens[-1].item()",
        "(cu_seqlens[1:] - cu_seqlens[:-1]).max().item() <= L",
    )  # fmt: skip
    sizes = grid_of(definition).settled({"batch": 3, "total": 100, "L": 2})
    assert sizes["L"] >= 34
    lengths = make_inputs(definition, sizes, Recipe(0))["cu_seqlens"].diff()
    assert int(lengths.sum()) == sizes["total"]
    assert int(lengths.max()) <= sizes["L"]


def test_a_bound_on_indices_leaves_something_to_point_at():
    inputs = {"weights": tensor("num_weights h"), "weight_indices": tensor("segments", "int32")}
    definition = define(
        "bounded", axes(num_weights=None, segments=None, h=4), inputs, {"y": tensor("segments h")}, NOTHING,
        "weight_indices.max().item() < num_weights",
    )  # fmt: skip
    sizes = grid_of(definition).settled({"num_weights": 0, "segments": 5})
    assert sizes["num_weights"] >= 1
    assert int(make_inputs(definition, sizes, Recipe(0))["weight_indices"].max()) < sizes["num_weights"]


MASKED = define(
    "masked_softmax", axes(rows=None, n=None),
    {"scores": tensor("rows n"), "mask": tensor("rows n", "bool", description="A row that is fully masked gives 0.")},
    {"p": tensor("rows n")}, NOTHING,
)  # fmt: skip


def test_rows_are_blanked_by_the_mask_and_scores_stay_finite():
    grid = grid_of(MASKED)
    assert {"uniform", "blank"} <= set(grid.structures)
    assert "neginf" not in family_names(contract_of(MASKED), plan_of(contract_of(MASKED)))
    for inputs in made(MASKED, {"rows": 6, "n": 9}, structure="blank"):
        assert inputs["mask"].any(dim=1).tolist() == [False, True] * 3
    for inputs in made(MASKED, {"rows": 6, "n": 9}):
        assert bool(inputs["mask"].any(dim=1).all())


def test_a_bias_keeps_what_a_family_is_for():
    inputs = {"logits": tensor("n e"), "bias": tensor("e", description="Added to the scores before the choice.")}
    definition = define("routing", axes(n=None, e=16), inputs, {"y": tensor("n e")}, NOTHING)
    assert plan_of(contract_of(definition)).roles["bias"].kind == "bias"
    for values in made(definition, {"n": 3}, family="negative"):
        assert float(values["bias"].max()) <= -1
    for values in made(definition, {"n": 3}, family="ties"):
        assert len(values["bias"].unique()) < 6


def test_eight_bit_floats_reach_their_largest_value():
    inputs = {"x": tensor("n k", "float8_e4m3fn"), "weight": tensor("m k", "float8_e4m3fn")}
    definition = define("fp8_gemm", axes(n=None, m=64, k=64), inputs, {"y": tensor("n m")}, NOTHING, op_type="gemm")
    values = make_inputs(definition, {"n": 64}, Recipe(0, family="large"))
    assert float(values["weight"].float().abs().max()) == 448
    assert float(values["x"].float().abs().max()) == 448


PREFILL = define(
    "prefill", axes(total_q=None, total_kv=None, batch=None, len_indptr=None, h=4),
    {"q": tensor("total_q h"), "k": tensor("total_kv h"), "v": tensor("total_kv h"),
     "qo_indptr": tensor("len_indptr", "int32"), "kv_indptr": tensor("len_indptr", "int32")},
    {"o": tensor("total_q h")}, NOTHING,
    "len_indptr == batch + 1", "total_q == qo_indptr[-1].item()", "total_kv == kv_indptr[-1].item()",
)  # fmt: skip


def test_some_sequence_really_has_more_queries_than_keys():
    for inputs in made(PREFILL, {"total_q": 11, "total_kv": 40, "batch": 3, "len_indptr": 4}, structure="q_longer"):
        queries, keys = inputs["qo_indptr"].diff(), inputs["kv_indptr"].diff()
        assert int(queries.sum()) == 11
        assert bool(((queries > keys) & (keys > 0)).any()) or int(keys[keys > 0].min()) >= 11


def test_edges_reach_past_single_blocks_and_the_sizes_of_constants():
    rows = define("rows", axes(n=None, h=48), {"x": tensor("n h")}, {"y": tensor("n h")}, NOTHING)
    sizes = [case[0]["n"] for case in edge_cases(rows)]
    assert 4097 in sizes
    assert 48 in sizes
    assert sizes.index(4097) > 15  # by then it shows how long a case takes
    assert max(case[0]["n"] for case in edge_cases(rows, max_elements=100_000)) == 4097, "more than others may have"
    wide = define("wide", axes(n=None, h=512), {"x": tensor("n h")}, {"y": tensor("n h")}, NOTHING)
    assert max(case[0]["n"] for case in edge_cases(wide, max_elements=100_000)) == 1025


def test_edges_reach_past_what_ids_of_sixteen_bits_can_name():
    looked_up = define(
        "looked_up", axes(n=None, rows=None, h=8), {"table": tensor("rows h"), "input_ids": tensor("n", "int64")},
        {"y": tensor("n h")}, NOTHING, "input_ids.max() < rows",
    )  # fmt: skip
    large = [case for case in edge_cases(looked_up, max_elements=100_000) if case[0]["rows"] > 1 << 16]
    assert [case[0]["n"] for case in large] == [5], "one of several ids is the last"
    many = next(case for case in edge_cases(looked_up, max_elements=100_000) if case[0]["n"] == 4097)
    assert many[0]["rows"] > 1, "or all ids would be the same"


def test_edges_have_rows_of_more_than_sixteen_bits_and_no_tokens_yet():
    penalties = define(
        "penalties", axes(batch=None, said=None, vocab_size=None),
        {"logits": tensor("batch vocab_size"), "output_ids": tensor("batch said", "int64")},
        {"y": tensor("batch vocab_size")}, NOTHING, "(output_ids < vocab_size).all()",
    )  # fmt: skip
    cases = [axes for axes, _ in edge_cases(penalties, max_elements=100_000)]
    assert any(each["said"] == 0 < each["batch"] for each in cases)
    assert not any(each["vocab_size"] == 0 for each in cases), "a row is not empty"
    assert any(each["vocab_size"] > 1 << 16 for each in cases)


def test_a_single_long_sequence_is_as_long_as_can_be():
    rows = define(
        "rows", axes(batch=None, most=None), {"x": tensor("batch most"), "lengths": tensor("batch", "int32")},
        {"y": tensor("batch most")}, NOTHING, "(lengths >= 0).all()", "(lengths <= most).all()",
    )  # fmt: skip
    for inputs in made(rows, {"batch": 1, "most": 4097}, structure="one_long"):
        assert inputs["lengths"].tolist() == [4097]


def test_few_tokens_are_the_same_in_all_inputs():
    both = define(
        "both", axes(n=None, vocab_size=1000), {"draft_tokens": tensor("n", "int32"), "tokens": tensor("n", "int32")},
        {"y": tensor("n", "int32")}, NOTHING, "(tokens < vocab_size).all()", "(draft_tokens < vocab_size).all()",
    )  # fmt: skip
    assert "few_ids" in {case[1].structure for case in edge_cases(both)}
    ends = set()
    for inputs in made(both, {"n": 40}, structure="few_ids"):
        used = set(inputs["tokens"].tolist())
        assert used == set(inputs["draft_tokens"].tolist())
        assert 1 <= len(used) <= 2
        ends |= used & {0, 999}
    assert ends == {0, 999}


def test_another_seed_draws_other_contents_and_other_sizes_for_families():
    one, two = edge_cases(PREFILL), edge_cases(PREFILL, seed=7)
    plain = [[sizes for sizes, recipe in cases if recipe.family == "normal"] for cases in (one, two)]
    small = [{tuple(sizes.items()) for sizes in cases if max(sizes.values()) < 30} for cases in plain]
    assert len(small[0] & small[1]) > len(small[0]) * 0.9
    assert [sizes for sizes, _ in one] != [sizes for sizes, _ in two]
    assert {recipe.seed for _, recipe in one}.isdisjoint(recipe.seed for _, recipe in edge_cases(PREFILL, seed=1 << 20))
    assert all(0 <= recipe.seed < 1 << 63 for _, recipe in edge_cases(PREFILL, seed=(1 << 63) - 1))


@pytest.mark.parametrize(
    ("inputs", "outputs", "rules"),
    [
        ({"q": tensor("n k", "int4"), "x": tensor("n m")}, {"y": tensor("n m")}, ()),
        ({"x": tensor("n m"), "w": tensor("k")}, {"y": tensor("n m", "float4_e2m1")}, ()),
        ({"q": tensor("n m", "float4_e2m1"), "x": tensor("k")}, {"y": tensor("n")}, ("m == k + 2", "k % 3 == 0")),
        ({"q": tensor("n k", "int4")}, {"y": tensor("n"), "ids": tensor("hits", "int4")}, ()),
    ],
)  # fmt: skip
def test_two_values_a_byte_come_in_pairs(inputs, outputs, rules):
    names = {name for spec in (*inputs.values(), *outputs.values()) for name in spec.shape or ()}
    definition = define("packed", axes(**dict.fromkeys(sorted(names))), inputs, outputs, NOTHING, *rules)
    packed = next(spec.shape[-1] for spec in (*inputs.values(), *outputs.values()) if is_packed(spec.dtype))
    cases = edge_cases(definition, limit=40)
    for sizes, recipe in cases:
        make_inputs(definition, sizes, recipe)
        output_shapes(definition, sizes)
    assert len({sizes[packed] for sizes, _ in cases}) > 5
