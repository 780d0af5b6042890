"""Integers that no constraint speaks of still mean something: each case of a small contract is checked for it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.data.model import Axis, InputSpec, Workload
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import AxisConflict
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.partition import floored
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import PAGED_DECODE, TABLE, axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"


def every(definition, limit=40):
    """The sizes and inputs of each case that is tried first."""
    cases = edge_cases(definition, max_elements=1 << 14, limit=limit)
    assert len(cases) > 8
    return [(sizes, make_inputs(definition, sizes, recipe)) for sizes, recipe in cases]


def test_experts_in_a_table_that_tokens_look_up():
    table = define(
        "hash_routing", axes(num_tokens=None, num_routed_experts=16, topk=3, vocab=40),
        {"logits": tensor("num_tokens num_routed_experts"), "input_ids": tensor("num_tokens", "int64"),
         "tid2eid": tensor("vocab topk", "int32")},
        {"y": tensor("num_tokens topk")}, NOTHING,
    )  # fmt: skip
    for _, inputs in every(table):
        assert int(inputs["tid2eid"].max()) < 16
        assert all(len(row.unique()) == 3 for row in inputs["tid2eid"])
        assert not inputs["input_ids"].numel() or int(inputs["input_ids"].max()) < 40


@pytest.mark.parametrize(
    ("words", "constraints"),
    [("Row of x for each choice of an expert, in [0, rows).", ()), ("", ("(inv_idx < rows).all()",)),
     ("", ("inv_idx.max() < 50",))],
)  # fmt: skip
def test_a_range_says_that_choices_are_no_experts(words, constraints):
    sizes = axes(num_tokens=None, top_k=2, num_experts=8, h=4, rows=50)
    inputs = {"x": tensor("rows h"), "inv_idx": tensor("num_tokens top_k", "int32", description=words),
              "w": tensor("num_experts h")}  # fmt: skip
    definition = define("unsort", sizes, inputs, {"y": tensor("num_tokens h")}, NOTHING, *constraints)
    drawn = torch.cat([inputs["inv_idx"].flatten() for _, inputs in every(definition, 20)])
    assert int(drawn.min()) == 0
    assert int(drawn.max()) == 49


@pytest.mark.parametrize("last", ["7", "num_experts - 1"])
def test_a_range_may_be_that_of_experts(last):
    inputs = {"inv_idx": tensor("num_tokens top_k", "int32"), "w": tensor("num_experts h")}
    definition = define("choose", axes(num_tokens=None, top_k=2, num_experts=8, h=4), inputs,
                        {"y": tensor("num_tokens h")}, NOTHING, f"(inv_idx <= {last}).all()")  # fmt: skip
    assert all(len(row.unique()) == 2 for _, inputs in every(definition, 20) for row in inputs["inv_idx"])


@pytest.mark.parametrize("pool", ["total_num_pages", "num_pages"])
def test_pages_are_those_of_the_pool_however_it_is_called(pool):
    paged = define(
        "paged", axes(batch_size=None, **{pool: None}, width=None, page_size=4, h=8),
        {"q": tensor("batch_size h"), "k_cache": tensor(f"{pool} page_size h"),
         "block_tables": tensor("batch_size width", "int32")},
        {"y": tensor("batch_size h")}, NOTHING,
    )  # fmt: skip
    for sizes, inputs in every(paged):
        ids = inputs["block_tables"]
        assert not ids.numel() or (int(ids.min()) >= 0 and int(ids.max()) < sizes[pool])


def test_positions_lie_in_the_table_and_not_in_the_rows_that_they_turn():
    rope = define(
        "rope", axes(nnz=None, max_seq_len=None, rope_dim=8, heads=2),
        {"q_rope": tensor("nnz heads rope_dim"), "cos_sin_cache": tensor("max_seq_len rope_dim"),
         "pos_ids": tensor("nnz", "int32")},
        {"y": tensor("nnz heads rope_dim")}, NOTHING,
    )  # fmt: skip
    for sizes, inputs in every(rope):
        assert not sizes["nnz"] or int(inputs["pos_ids"].max()) < sizes["max_seq_len"]


STATES = define(
    "replay", axes(num_layers=None, pool_size=None, batch_size=None, seq_len=None, h=4),
    {"states": tensor("num_layers pool_size h h"), "window": tensor("num_layers pool_size seq_len h"),
     "state_indices": tensor("batch_size", "int32"), "accept_lens": tensor("batch_size", "int32"),
     "track_state_indices": tensor("batch_size", "int32"), "track_steps": tensor("batch_size", "int32")},
    {"y": tensor("num_layers pool_size h h")}, NOTHING,
)  # fmt: skip


def test_slots_of_pools_in_layers_differ_and_their_windows_are_long_enough():
    for sizes, inputs in every(STATES):
        slots = torch.cat([inputs["state_indices"], inputs["track_state_indices"]])
        assert len(slots.unique()) == len(slots) == 2 * sizes["batch_size"]
        assert not slots.numel() or int(slots.max()) < sizes["pool_size"]
        assert all(int(n) <= sizes["seq_len"] for n in inputs["accept_lens"])
        assert all(int(n) < sizes["seq_len"] for n in inputs["track_steps"])


@pytest.mark.parametrize(
    ("words", "differ"),
    [("row of the state of each sequence, distinct", True), ("row of each sequence, all different", True),
     ("row of each sequence; no two are equal", True), ("Row of each sequence, never the same twice.", True),
     ("row of each sequence, without duplicates", True), ("distinct rows of the state", True),
     ("row of each sequence", False), ("row of each sequence, not necessarily distinct", False),
     ("row of each sequence, may contain duplicates", False), ("index into the unique rows", False),
     ("row of each sequence, as torch.unique gives it", False)],
)  # fmt: skip
@pytest.mark.parametrize("rows", [None, 7])
def test_ids_that_words_say_to_differ_do_at_all_sizes(words, differ, rows):
    definition = define(
        "update", axes(b=None, n=rows, d=4), {"x": tensor("b d"), "state": tensor("n d"),
        "idx": tensor("b", "int32", description=words)}, {"y": tensor("b d")},
        "def run(x, state, idx):\n    return x + state[idx.long()]")  # fmt: skip
    cases = every(definition, 20)
    assert all(0 <= int(i) < sizes["n"] for sizes, inputs in cases for i in inputs["idx"])
    assert differ == all(len(inputs["idx"].unique()) == sizes["b"] for sizes, inputs in cases)
    if differ:
        with pytest.raises(AxisConflict, match="distinct"):
            make_inputs(definition, {"b": 8, "n": 7}, Recipe(0))


@pytest.mark.parametrize("least", ["n // 2", "1", "n - m"])
def test_slots_begin_where_a_constraint_says(least):
    inputs = {"cache": tensor("n d"), "src": tensor("m", "int64", description="row to copy"),
              "dst": tensor("m", "int64", description="row to copy to, distinct")}  # fmt: skip
    definition = define("copy", axes(n=None, m=None, d=4), inputs, {"y": tensor("n d")},
                        "def run(cache, src, dst):\n    cache[dst] = cache[src]\n    return cache",
                        f"((dst >= {least}) & (dst < n)).all()", "dst.unique().numel() == m")  # fmt: skip
    for m in (0, 1, 9, 16):
        for seed in range(3):
            made = make_inputs(definition, {"n": 32, "m": m}, Recipe(seed))["dst"].tolist()
            assert len(set(made)) == m
            assert all(eval(least, {"n": 32, "m": m}) <= each < 32 for each in made)
    with pytest.raises(AxisConflict, match="distinct"):
        make_inputs(definition, {"n": 8, "m": 9}, Recipe(0))


@pytest.mark.parametrize(("definition", "name", "rule"), [
    (PAGED_DECODE, "kv_indices", "(kv_indices >= 1).all()"),
    (TABLE, "block_table", "((block_table >= 1) | (block_table == -1)).all()"),
])  # fmt: skip
def test_pages_begin_where_a_constraint_says(definition, name, rule):
    """Page 0 is that of nobody in some servers."""
    reserved = replace(definition, constraints=(*definition.constraints, rule))
    made = []
    for case in edge_cases(reserved, max_elements=1 << 14, limit=40):
        with suppress(AxisConflict):  # a pool of one page has no other
            made.append(make_inputs(reserved, *case)[name].flatten())
    pages = torch.cat(made)
    assert len(made) > 36
    assert int(pages[pages >= 0].min()) == 1


def test_ids_that_differ_in_each_row_may_come_again_in_others():
    words = "rows of the table that each token takes, distinct in each row"
    inputs = {"table": tensor("n d"), "idx": tensor("tokens k", "int32", description=words)}
    definition = define("take", axes(tokens=None, k=3, n=None, d=4), inputs, {"y": tensor("tokens k d")},
                        "def run(table, idx):\n    return table[idx.long()]")  # fmt: skip
    drawn = [(sizes, inputs["idx"]) for sizes, inputs in every(definition, 20)]
    assert all(len(row.unique()) == 3 and int(row.max()) < sizes["n"] for sizes, ids in drawn for row in ids)
    assert any(len(ids.unique()) < ids.numel() for _, ids in drawn)


@pytest.mark.parametrize(
    ("tables", "positions", "rows"),
    [("seq_len d", "seq_len", "seq_len"), ("seq_len d", "batch seq_len", "seq_len"),
     ("batch seq_len d", "batch seq_len", "seq_len"), ("batch seq_len d", "batch", "seq_len"),
     ("max_pos d", "seq_len", "max_pos")],
)  # fmt: skip
def test_positions_lie_in_a_table_that_shares_their_axis(tables, positions, rows):
    sizes = axes(batch=None, seq_len=None, d=8, **({"max_pos": None} if rows == "max_pos" else {}))
    inputs = {"x": tensor("batch seq_len d"), "positions": tensor(positions, "int32"), "cos": tensor(tables),
              "sin": tensor(tables), "q_rope": tensor("seq_len d")}  # fmt: skip
    seen = every(define("turned", sizes, inputs, {"y": tensor("batch seq_len d")}, NOTHING))
    highest = [(int(inputs["positions"].max()), sizes[rows]) for sizes, inputs in seen if inputs["positions"].numel()]
    assert all(n < size for n, size in highest)
    assert any(0 < n == size - 1 for n, size in highest)


@pytest.mark.parametrize("width", [None, 6])
@pytest.mark.parametrize(
    ("constraints", "least", "past"),
    [((), 0, 0), (("(starts <= ends).all()", "(starts >= 0).all()", "(ends <= h).all()"), 0, 0),
     (("(starts < ends).all()",), 1, 0), (("(ends < h).all()",), 0, 1)],
)  # fmt: skip
def test_windows_lie_anywhere_in_rows(width, constraints, least, past):
    definition = define(
        "window", axes(n=None, h=width), {"x": tensor("n h"), "starts": tensor("n", "int32"),
        "ends": tensor("n", "int32")}, {"y": tensor("n")}, NOTHING, *constraints)  # fmt: skip
    windows = [
        (start, end, sizes["h"])
        for sizes, inputs in every(definition, 30)
        for start, end in zip(inputs["starts"].tolist(), inputs["ends"].tolist(), strict=True)
    ]
    assert all(0 <= start <= end - least <= h - least - past for start, end, h in windows)
    assert any(h > 2 and end == h - past for _, end, h in windows)
    assert any(h > 2 and end == least for _, end, h in windows)
    assert len({start for start, *_ in windows}) > 3


def test_permutations_have_each_row_once():
    ordered = define(
        "ordered", axes(batch=None, wide=None),
        {"x": tensor("batch wide"), "request_order": tensor("batch", "int32", description="Slot of each request."),
         "perm": tensor("batch wide", "int64")},
        {"y": tensor("batch wide")}, NOTHING,
    )  # fmt: skip
    seen = every(ordered)
    for sizes, inputs in seen:
        assert inputs["request_order"].sort().values.tolist() == list(range(sizes["batch"]))
        assert all(row.sort().values.tolist() == list(range(sizes["wide"])) for row in inputs["perm"])
    long = [inputs["request_order"].tolist() for sizes, inputs in seen if sizes["batch"] > 2]
    assert long
    assert all(ids != sorted(ids) for ids in long)


def ordered(shape, words="", *constraints, name="order"):
    rows = Axis("var", description="num_tokens * top_k")
    sizes = {**axes(num_tokens=None, top_k=2, h=4), "rows": rows}
    inputs = {"x": tensor("rows h"), name: tensor(shape, "int32", description=words), "z": tensor("num_tokens h")}
    definition = define("ordered", sizes, inputs, {"y": tensor("num_tokens h")}, NOTHING, *constraints)
    return [inputs[name] for _, inputs in every(definition, 24) if inputs[name].numel()]


@pytest.mark.parametrize(
    "words",
    ["Permutation of the num_tokens * top_k expanded rows, in [0, rows).", "Permutation of all routed rows.",
     "A permutation of the rows, in [0, rows)."],
)  # fmt: skip
def test_one_permutation_may_be_of_all_elements(words):
    for drawn in ordered("num_tokens top_k", words):
        assert drawn.flatten().sort().values.tolist() == list(range(drawn.numel()))


@pytest.mark.parametrize("words", ["", "Permutation of the choices of each row.", "Order of choices, in [0, top_k)."])
def test_a_permutation_may_be_of_each_row(words):
    assert all(row.sort().values.tolist() == [0, 1] for drawn in ordered("num_tokens top_k", words) for row in drawn)


def test_a_permutation_may_start_at_one_and_leave_values_out():
    for drawn in ordered("num_tokens", "Permutation of the tokens, in [1, num_tokens]."):
        assert drawn.sort().values.tolist() == list(range(1, len(drawn) + 1))
    some = ordered("num_tokens", "Order of some rows, in [0, rows).")
    assert all(len(drawn.unique()) == len(drawn) and int(drawn.max()) < 2 * len(drawn) for drawn in some)
    assert any(int(drawn.max()) >= len(drawn) for drawn in some)


@pytest.mark.parametrize(
    ("words", "constraints"),
    [("Polynomial order of each row, in [0, 3].", ()), ("", ("(order >= 0).all()", "(order <= 3).all()"))],
)
def test_an_order_with_another_range_is_no_permutation(words, constraints):
    drawn = ordered("num_tokens", words, *constraints)
    assert {int(n) for each in drawn for n in each} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("name", "words"),
    [("mask", "Valid rows per expert."), ("num_valid_rows", ""), ("rows", "Per-expert valid row count.")],
)
def test_amounts_go_up_to_the_other_size(name, words):
    masked = define(
        "masked", axes(experts=None, rows_max=None, h=4),
        {"x": tensor("experts rows_max h"), name: tensor("experts", "int32", description=words)},
        {"y": tensor("experts rows_max h")}, NOTHING,
    )  # fmt: skip
    seen = [(sizes, amount) for sizes, inputs in every(masked) for amount in inputs[name].tolist()]
    assert all(0 <= amount <= sizes["rows_max"] for sizes, amount in seen)
    assert any(amount == sizes["rows_max"] for sizes, amount in seen)
    assert any(amount > 1 for _, amount in seen)


BLOCKS = define(
    "block_attention", axes(total_q=None, total_k=None, heads=2, topk=4, h=8, len_indptr=None),
    {"q": tensor("total_q heads h"), "k": tensor("total_k heads h"),
     "q2k_indices": tensor("heads total_q topk", "int32", description="Selected KV-block ids, -1 padded."),
     "cu_seqlens_q": tensor("len_indptr", "int32"), "cu_seqlens_k": tensor("len_indptr", "int32")},
    {"y": tensor("total_q heads h")}, NOTHING,
    "total_q == cu_seqlens_q[-1].item()", "total_k == cu_seqlens_k[-1].item()",
    description="Each query attends to its selected KV blocks (8 tokens each).",
)  # fmt: skip


def test_blocks_are_those_that_a_query_may_see():
    most = 0
    for _, inputs in every(BLOCKS):
        ends = zip(inputs["cu_seqlens_q"].tolist(), inputs["cu_seqlens_k"].tolist(), strict=True)
        (lo, klo), *rest = ends
        for hi, khi in rest:
            for place in range(lo, hi):
                seen = (khi - klo) - (hi - place) + 1
                for row in inputs["q2k_indices"][:, place]:
                    ids = row[row >= 0].tolist()
                    assert ids == sorted(set(ids))
                    assert row[len(ids) :].tolist() == [-1] * (len(row) - len(ids))
                    assert seen <= 0 or (ids and 8 * ids[-1] < seen)
                    most = max(most, len(ids))
            lo, klo = hi, khi
    assert most > 1


def test_windows_of_tokens_end_within_their_sequence():
    windows = define(
        "windows",
        axes(num_tokens=None, num_pages=None, batch_size=None, width=None, batch_size_plus_1=None, page_size=4),
        {"query": tensor("num_tokens page_size"), "kv_cache": tensor("num_pages page_size"),
         "block_tables": tensor("batch_size width", "int32"), "seq_lens": tensor("batch_size", "int32"),
         "cum_seq_lens_q": tensor("batch_size_plus_1", "int32"), "max_q_len": tensor(None, "int32"),
         "cum_seq_lens_kv": tensor("batch_size_plus_1", "int32"), "max_kv_len": tensor(None, "int32"),
         "batch_size_scalar": tensor(None, "int32"), "token_starts": tensor("num_tokens", "int32"),
         "token_ends": tensor("num_tokens", "int32", description="Inclusive K/V end of each token.")},
        {"y": tensor("num_tokens page_size")}, NOTHING,
    )  # fmt: skip
    for sizes, inputs in every(windows):
        q, kv = inputs["cum_seq_lens_q"].diff(), inputs["cum_seq_lens_kv"].diff()
        assert int(inputs["cum_seq_lens_q"][-1]) == sizes["num_tokens"]  # and not of the keys
        assert inputs["seq_lens"].tolist() == kv.tolist()
        assert all(n <= sizes["width"] * 4 for n in kv.tolist())
        assert inputs["max_q_len"] >= max(q.tolist(), default=0)
        assert inputs["max_kv_len"] == max(1, *kv.tolist(), 0)
        assert inputs["batch_size_scalar"] == sizes["batch_size"]
        ends = inputs["token_ends"].tolist()
        assert all(end < max(1, n) for end, n in zip(ends, kv.repeat_interleave(q.long()).tolist(), strict=True))


def test_queries_and_keys_in_one_tensor_have_the_same_sequences():
    packed = define(
        "packed_qkv", axes(num_tokens=None, batch_size=None, ends_q=None, ends_kv=None, h=4),
        {"qkv": tensor("num_tokens h"), "cum_seq_lens_q": tensor("ends_q", "int32"),
         "cum_seq_lens_kv": tensor("ends_kv", "int32")},
        {"y": tensor("num_tokens h")}, NOTHING, "ends_q == batch_size + 1", "ends_kv == batch_size + 1",
    )  # fmt: skip
    for sizes, inputs in every(packed):
        assert inputs["cum_seq_lens_q"][-1] == sizes["num_tokens"]
        assert inputs["cum_seq_lens_kv"][-1] == sizes["num_tokens"]


def table_of_lengths(**changes):
    inputs = {
        "q": tensor("num_tokens h"), "k_cache": tensor("num_pages page_size h"),
        "block_tables": tensor("batch_size width", "int32"), "seq_lens": tensor("batch_size", "int32"),
        "max_seq_len": tensor(None, "int32"),
    }  # fmt: skip
    sizes = axes(num_tokens=None, num_pages=None, batch_size=None, width=None, page_size=4, h=8, kv_heads=2)
    return define("decode", sizes, {**inputs, **changes}, {"y": tensor("num_tokens h")}, NOTHING)


def test_rows_of_queries_that_nothing_splits_are_as_many_for_each_sequence():
    for sizes, inputs in every(table_of_lengths()):
        rows, count = sizes["num_tokens"], sizes["batch_size"]
        assert rows % count == 0 if count else rows == 0
        room = min(rows // max(1, count), 4 * sizes["width"])
        assert all(n == 0 or n >= room for n in inputs["seq_lens"].tolist())
        assert inputs["max_seq_len"] == max(1, *inputs["seq_lens"].tolist(), 0)


@pytest.mark.parametrize("seed", range(12))
def test_sequences_that_get_more_keys_for_the_others_have_enough_for_their_own_queries(seed):
    sizes = {"num_tokens": 45, "num_pages": 50, "batch_size": 5, "width": 3}
    lengths = make_inputs(table_of_lengths(), sizes, Recipe(seed))["seq_lens"].tolist()
    assert all(n == 0 or n >= 9 for n in lengths)


@pytest.mark.parametrize(("told", "fewer"), [("Every query sees all valid keys.", True), ("Causal.", False)])
def test_padded_keys_are_of_any_number_unless_a_mask_hides_some(told, fewer):
    cross = define(
        "padded", axes(batch=None, q_len=None, kv_len=None, d=4),
        {"q": tensor("batch q_len d"), "k": tensor("batch kv_len d"), "kv_lens": tensor("batch", "int32")},
        {"y": tensor("batch q_len d")}, NOTHING, "bool(((kv_lens >= 0) & (kv_lens <= kv_len)).all())",
        description=told,
    )  # fmt: skip
    drawn = [(sizes["q_len"], sizes["kv_len"], n) for sizes, inputs in every(cross) for n in inputs["kv_lens"].tolist()]
    assert any(0 < n < queries for queries, _, n in drawn) == fewer
    assert any(0 < n < keys for _, keys, n in drawn)
    assert any(queries < n for queries, _, n in drawn)
    assert max(n for *_, n in drawn) > 100


def test_lengths_of_more_than_a_few_pages_are_not_whole_ones_only():
    definition = table_of_lengths()
    drawn = [make_inputs(definition, *case)["seq_lens"].tolist() for case in edge_cases(definition)]
    long = [n for lengths in drawn for n in lengths if n > 64]
    assert {0, 3} <= {n % 4 for n in long}


def test_tables_share_pages_unless_the_definition_says_that_they_do_not():
    sharing = table_of_lengths()
    apart = table_of_lengths(block_tables=tensor("batch_size width", "int32", description="-1 pads. Distinct pages."))
    found = set()
    for definition in (sharing, apart):
        for case in edge_cases(definition):
            inputs = make_inputs(definition, *case)
            pairs = zip(inputs["block_tables"].tolist(), inputs["seq_lens"].tolist(), strict=True)
            ids = [each for row, n in pairs for each in row[: -(-n // 4)]]
            if len(ids) <= case[0]["num_pages"]:
                found.add((definition is sharing, len(set(ids)) < len(ids)))
    assert found == {(True, True), (True, False), (False, False)}


def test_rows_of_queries_sum_to_what_lengths_say():
    split = table_of_lengths(seq_lens_q=tensor("batch_size", "int32"), seq_lens_kv=tensor("batch_size", "int32"))
    for sizes, inputs in every(split):
        assert int(inputs["seq_lens_q"].sum()) == sizes["num_tokens"]
        pairs = zip(inputs["seq_lens_q"].tolist(), inputs["seq_lens_kv"].tolist(), strict=True)
        assert all(q <= kv <= 4 * sizes["width"] for q, kv in pairs)


def test_each_line_of_a_table_has_a_length_of_its_own():
    lines = table_of_lengths(
        block_tables=tensor("kv_heads batch_size width", "int32", description="Distinct pages."),
        seq_lens=tensor("kv_heads batch_size", "int32"),
    )
    for sizes, inputs in every(lines):
        assert not sizes["batch_size"] or sizes["num_tokens"] % sizes["batch_size"] == 0
        for row, n in zip(inputs["block_tables"].flatten(0, 1), inputs["seq_lens"].flatten().tolist(), strict=True):
            used = row[: -(-n // 4)]
            assert n <= 4 * sizes["width"]
            assert len(used.unique()) == len(used)
            assert not used.numel() or int(used.max()) < sizes["num_pages"]


def test_lengths_keep_to_the_columns_of_an_output():
    padded = define(
        "logits", axes(batch_size=None, num_pages=None, width=None, max_seq_len=None, page_size=4, h=8),
        {"q": tensor("batch_size h"), "k_cache": tensor("num_pages page_size h"),
         "block_tables": tensor("batch_size width", "int32"), "seq_lens": tensor("batch_size", "int32"),
         "max_seq_len": tensor(None, "int32")},
        {"logits": tensor("batch_size max_seq_len")}, NOTHING,
    )  # fmt: skip
    for sizes, inputs in every(padded):
        assert inputs["max_seq_len"] == sizes["max_seq_len"]
        assert all(n <= sizes["max_seq_len"] for n in inputs["seq_lens"].tolist())


def test_rows_belong_to_rows_of_the_table_that_they_look_up():
    looked = define(
        "looked", axes(num_rows=None, batch_size=None, width=None, max_len=None),
        {"scores": tensor("num_rows max_len"), "page_table": tensor("batch_size width", "int32"),
         "lengths": tensor("num_rows", "int32"), "row_to_batch": tensor("num_rows", "int32", optional=True)},
        {"y": tensor("num_rows")}, NOTHING,
    )  # fmt: skip
    for sizes, inputs in every(looked):
        own = inputs["row_to_batch"]
        assert own is not None or sizes["num_rows"] == sizes["batch_size"]
        assert own is None or all(0 <= row < sizes["batch_size"] for row in own.tolist())
    for rows in (3, 4):
        sizes = {"num_rows": rows, "batch_size": 3, "width": 2, "max_len": 8}
        left_out = make_inputs(looked, sizes, Recipe(0, absent=frozenset({"row_to_batch"})))["row_to_batch"] is None
        assert left_out == (rows == 3)  # a row is its own sequence then


def test_bytes_that_hold_scales_are_no_huge_exponents():
    for words in ("Codes, then UE8M0 scale factors.", "[codes][SF int32] of a block", "rows with their scales"):
        fused = define("fused", axes(n=None, h=8), {"kv": tensor("n h", "uint8", description=words)},
                       {"y": tensor("n")}, NOTHING)  # fmt: skip
        assert plan_of(contract_of(fused)).roles["kv"].kind == "fused_bytes"


def test_a_mask_of_bits_uses_all_of_them():
    masks = define("masks", axes(n=None, words=None), {"x": tensor("n words"), "bitmask": tensor("n words", "int32")},
                   {"y": tensor("n words")}, NOTHING)  # fmt: skip
    seen = torch.cat([inputs["bitmask"].flatten() for _, inputs in every(masks)])
    assert int(seen.min()) < 0
    assert int(seen.max()) > 1 << 24
    assert bool((seen == -1).any())  # all are allowed


@pytest.mark.parametrize(
    ("words", "dtype", "width"),
    [(5, "int16", 16), (5, "uint16", 16), (5, "int32", 32), (5, "uint32", 32), (3, "int64", 64), (3, "uint64", 64),
     (1, "int16", 16), (1, "int32", 32)],
)  # fmt: skip
def test_words_of_a_mask_are_full_and_empty_and_rows_have_one_bit_at_any_place(words, dtype, width):
    masks = define("masks", axes(n=None, words=words), {"x": tensor("n words"), "bitmask": tensor("n words", dtype)},
                   {"y": tensor("n words")}, NOTHING)  # fmt: skip
    sizes = {"n": 40, "words": words}
    drawn = torch.cat([make_inputs(masks, sizes, Recipe(seed))["bitmask"] for seed in range(20)]).long()
    assert bool(drawn.ne(0).any(dim=1).all()), "each row has a bit"
    full = -1 if width == 64 or dtype.startswith("int") else 2**width - 1
    mixed = drawn[drawn.eq(full).any(dim=1) & drawn.ne(full).any(dim=1)]
    assert words == 1 or (len(mixed) and bool(drawn.eq(0).any()))
    ones = (drawn.unsqueeze(-1) >> torch.arange(width)).bitwise_and(1).view(len(drawn), -1)
    places = ones[ones.sum(dim=1) == 1].argmax(dim=1)
    assert words == 1 or set(places.tolist()) >= {1, width - 1, width * (words - 1)}
    assert max(places.tolist(), default=0) <= width * (words - 1), "what is behind the end may be anything"
    blank = make_inputs(masks, sizes, Recipe(0, structure="blank"))["bitmask"].long()
    assert blank.eq(0).all(dim=1).tolist() == [True, False] * 20


def test_words_of_rows_that_nobody_knows_keep_a_bit_each():
    packed = define("packed", axes(words=None), {"x": tensor("words"), "packed_mask": tensor("words", "uint8")},
                    {"y": tensor("words")}, NOTHING)  # fmt: skip
    drawn = make_inputs(packed, {"words": 200}, Recipe(0))["packed_mask"]
    assert bool(drawn.bitwise_and(1).all())


@pytest.mark.parametrize(
    ("lengths", "least", "none", "result"),
    [
        ([0, 5, 1], 1, False, [1, 4, 1]),
        ([0, 5, 1], 2, True, [0, 4, 2]),
        ([0, 0], 1, False, [0, 0]),
        ([3], 5, False, [3]),
    ],
)
def test_short_lengths_take_from_the_longest(lengths, least, none, result):
    assert floored(lengths, least, none=none) == result


def test_every_sequence_has_a_page_where_its_last_one_is_never_empty():
    last = tensor("batch_size", "int32", description="Tokens in the last page, in [1, page_size].")
    sizes = axes(batch_size=None, batch_size_plus_1=None, num_pages=None, num_ids=None, h=4)
    inputs = {"x": tensor("batch_size h"), "pool": tensor("num_pages h"), "page_indices": tensor("num_ids", "int32"),
              "page_indptr": tensor("batch_size_plus_1", "int32"), "last_page_len": last}  # fmt: skip
    definition = define("states", sizes, inputs, {"y": tensor("batch_size h")}, NOTHING,
                        "batch_size_plus_1 == batch_size + 1", "num_ids == page_indptr[-1].item()")  # fmt: skip
    drawn = [make_inputs(definition, *case) for case in edge_cases(definition, max_elements=1 << 12)]
    assert all(int(n) >= 1 for inputs in drawn for n in inputs["page_indptr"].diff())
    lasts = {int(n) for inputs in drawn for n in inputs["last_page_len"]}
    assert min(lasts) == 1
    assert max(lasts) > 8  # a page of unknown size has several


def test_lengths_keep_to_the_longest_that_a_workload_states():
    definition = table_of_lengths()
    specs = {name: InputSpec("random") for name in definition.inputs} | {"max_seq_len": InputSpec("scalar", value=5)}
    sizes = {"num_tokens": 4, "num_pages": 20, "batch_size": 4, "width": 3}
    for seed in range(6):
        inputs = make_inputs(definition, sizes, Recipe(seed), workload=Workload("w", sizes, specs))
        assert inputs["max_seq_len"] == 5
        assert max(inputs["seq_lens"].tolist()) <= 5


@pytest.mark.parametrize("name", ["positions", "picked"])
def test_a_few_rows_of_ids_are_alike_or_count_up(name):
    definition = define("few", axes(three=3, n=None, rows=None, h=8),
                        {"x": tensor("n h"), name: tensor("three n", "int32"), "cos_cache": tensor("rows h")},
                        {"y": tensor("n h")}, NOTHING, f"({name} >= 0).all()", f"({name} < rows).all()")  # fmt: skip
    sizes = {"three": 3, "n": 7, "rows": 30, "h": 8}
    drawn = [make_inputs(definition, sizes, Recipe(seed))[name] for seed in range(160)]
    equal = {(a, b) for ids in drawn for a, b in ((0, 1), (0, 2), (1, 2)) if torch.equal(ids[a], ids[b])
             and not bool((ids == ids[:1]).all())}  # fmt: skip
    assert equal == {(0, 1), (0, 2), (1, 2)}
    up = [ids.eq(torch.arange(7)).all(dim=1).sum().item() for ids in drawn]
    assert {0, 1, 3} <= set(up)
    assert any(bool((ids == ids[:1]).all()) and not count for ids, count in zip(drawn, up, strict=True))
    assert any(ids[0, :3].tolist() == [0, 1, 2] and ids[0, -1] != 6 for ids in drawn)


def test_positions_of_rows_count_up_now_and_then_where_the_table_has_as_many():
    inputs = {"x": tensor("n h"), "positions": tensor("n", "int32"), "cos_sin_cache": tensor("rows h")}
    definition = define("turned", axes(n=None, rows=None, h=8), inputs, {"y": tensor("n h")}, NOTHING)
    for rows, ways in ((30, {True, False}), (5, {False})):
        sizes = {"n": 9, "rows": rows, "h": 8}
        drawn = [make_inputs(definition, sizes, Recipe(seed))["positions"] for seed in range(40)]
        assert {torch.equal(ids, torch.arange(9, dtype=ids.dtype)) for ids in drawn} == ways
        assert max(int(ids.max()) for ids in drawn) == rows - 1


@pytest.mark.parametrize(
    ("words", "more"),
    [("Row of x; num_tokens for padding.", ""), ("", "Of sorted_token_ids num_tokens is padding.")],
)
def test_one_past_the_last_row_pads_where_the_contract_says_so(words, more):
    inputs = {"hidden_states": tensor("num_tokens h"),
              "sorted_token_ids": tensor("num_sorted", "int32", description=words)}  # fmt: skip
    definition = define("gather", axes(num_tokens=None, num_sorted=None, h=4), inputs, {"y": tensor("num_sorted h")},
                        "def run(hidden_states, sorted_token_ids):\n    return hidden_states[sorted_token_ids]\n",
                        "((sorted_token_ids >= 0) & (sorted_token_ids <= num_tokens)).all()")  # fmt: skip
    drawn = []
    for sizes, given in every(replace(definition, description=more)):
        ids = given["sorted_token_ids"]
        drawn += [float((ids == sizes["num_tokens"]).float().mean())] if len(ids) else []
    assert max(drawn) > 0
    assert min(drawn) == 0


@pytest.mark.parametrize(
    ("words", "least"),
    [("Tokens to keep per row; 0 or less, or the vocabulary or more: all.", -1), ("Non-positive keeps all.", -1),
     ("Tokens to keep; 0 keeps all.", 0), ("Tokens to keep.", 1)],
)  # fmt: skip
def test_a_number_of_tokens_to_keep_may_be_none_or_less_where_the_contract_says_so(words, least):
    inputs = {"logits": tensor("batch vocab_size"), "top_k": tensor("batch", "int32", description=words)}
    definition = define("keep", axes(batch=None, vocab_size=None), inputs, {"y": tensor("batch vocab_size")}, NOTHING)
    assert min(int(given["top_k"].min()) for _, given in every(definition) if len(given["top_k"])) == least


def test_ids_that_may_repeat_look_like_a_range_by_their_ends_at_times():
    inputs = {"x": tensor("rows h"), "index": tensor("n", "int32")}
    reference = "def run(x, index):\n    return x[index]\n"
    definition = define("pick", axes(rows=None, n=None, h=4), inputs, {"y": tensor("n h")}, reference,
                        "((index >= 0) & (index < rows)).all()")  # fmt: skip
    drawn = [make_inputs(definition, {"rows": 40, "n": 12}, Recipe(seed))["index"] for seed in range(120)]
    alike = [ids for ids in drawn if int(ids[-1] - ids[0]) == 11]
    assert 5 < len(alike) < 40
    assert any(int(ids[0]) == 0 for ids in alike)
    assert any(int(ids[0]) > 0 for ids in alike)
    assert not any(torch.equal(ids, ids[0] + torch.arange(12)) for ids in drawn)


@pytest.mark.parametrize(
    "rule",
    ["all(t == -100 or 0 <= t < vocab for t in labels.tolist())", "((labels == -100) | (labels >= 0)).all()",
     "all((t == -100) or (t >= 0 and t < vocab) for t in labels.tolist())"],
)  # fmt: skip
def test_rows_that_a_loop_lets_be_ignored_are_drawn(rule):
    inputs = {"logits": tensor("n vocab"), "labels": tensor("n", "int64")}
    loss = define("loss", axes(n=None, vocab=50), inputs, {"y": tensor("n")}, NOTHING, rule)
    drawn = torch.cat([inputs["labels"] for _, inputs in every(loss)])
    assert (int(drawn.min()), int(drawn.max())) == (-100, 49)
    assert 0.005 < float((drawn == -100).float().mean()) < 0.7


@pytest.mark.parametrize("rule", ["torch.all(torch.diff(seg_starts) >= 0).item()", "len_starts == segments + 1"])
def test_starts_that_end_at_a_total_are_pointers_and_no_scratch(rule):
    inputs = {"x": tensor("tokens h"), "seg_starts": tensor("len_starts", "int32")}
    sizes = axes(tokens=None, segments=None, len_starts=None, h=4)
    rules = ("len_starts == segments + 1", "seg_starts[0].item() == 0", "seg_starts[-1].item() == tokens", rule)
    ragged = define("ragged", sizes, inputs, {"y": tensor("segments h")}, NOTHING, *rules)
    steps = [inputs["seg_starts"].diff() for _, inputs in every(ragged)]
    assert sum(int((each > 0).sum()) > 1 for each in steps) > len(steps) // 3


@pytest.mark.parametrize(("rule", "least"), [("1 <= ranks.min().item()", 1), ("(ranks >= 1).all()", 0)])
def test_a_pool_is_not_empty_where_a_constraint_asks_for_the_least_of_its_entries(rule, least):
    ids = tensor("n", "int32", description="Adapter of each token, or -1 for none.")
    inputs = {"x": tensor("n h"), "a": tensor("adapters h"), "ranks": tensor("adapters", "int32"), "ids": ids}
    rules = ("-1 <= ids.min() and ids.max() < adapters", "ranks.max().item() <= 16", rule)
    rules = rules if least else rules[::2]
    adapted = define("adapted", axes(n=None, adapters=None, h=4), inputs, {"y": tensor("n h")}, NOTHING, *rules)
    assert min(sizes["adapters"] for sizes, _ in edge_cases(adapted, max_elements=1 << 14)) == least
