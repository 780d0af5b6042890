"""Words by which published contracts say what an integer means: halves of a word, slots of a page, a size repeated."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.data.model import Axis
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from tests.inputs.contracts import axes, define, tensor

from .test_meaning import NOTHING, every

BELOW = "Packed: most significant 16 bits = expert weight (bfloat16), least significant 16 bits = expert index."
ABOVE = "Packed tensor. Upper 16 bits = expert index, lower 16 bits = expert weight (bfloat16 as int16)."
BITS = "Packed routing: bits[31:16]=expert_index, bits[15:0]=expert_weight (bfloat16 bits)."
OTHER_BITS = "Packed routing: bits[31:16]=expert_weight, bits[15:0]=expert_index."


@pytest.mark.parametrize(("words", "below"), [(BELOW, True), (ABOVE, False), (BITS, False), (OTHER_BITS, True)])
def test_the_half_that_holds_the_expert_is_the_one_that_is_told(words, below):
    routed = define(
        "routed", axes(seq_len=None, num_experts=8, top_k=2, h=4),
        {"topk_ids": tensor("seq_len top_k", "int32", description=words), "w": tensor("num_experts h")},
        {"y": tensor("seq_len h")}, NOTHING,
    )  # fmt: skip
    for _, inputs in every(routed, 20):
        high, low = inputs["topk_ids"] >> 16, inputs["topk_ids"] & 0xFFFF
        ids, weights = (low, high) if below else (high, low)
        assert not ids.numel() or (int(ids.min()) >= 0 and int(ids.max()) < 8)
        weights = weights.to(torch.int16).view(torch.bfloat16).float()
        assert bool(((weights >= 0) & (weights <= 1)).all())


def _gathered(words):
    sizes = {**axes(batch=None, num_pages=None, width=None, d=4), "p": Axis("const", 8, description=words)}
    inputs = {
        "cache": tensor("num_pages p d"), "block_table": tensor("batch width", "int32"),
        "seq_lens": tensor("batch", "int32"),
    }  # fmt: skip
    rules = ("(seq_lens <= width * p).all()", "(block_table >= -1).all()")
    return define("gathered", sizes, inputs, {"y": tensor("batch d")}, NOTHING, *rules)


@pytest.mark.parametrize(
    ("words", "slots"),
    [
        ("page size", True), ("Page size of the cache", True), ("tokens per page", True), ("slots of a page", True),
        ("number of tokens in each page", True), ("tokens per block", True), (None, False), ("head size", False),
        ("numbers of a row, whatever the page size", False), ("pages of a sequence", False),
    ],
)  # fmt: skip
def test_a_description_tells_how_many_slots_a_page_has(words, slots):
    assert (plan_of(contract_of(_gathered(words))).page_size is not None) is slots


def test_sequences_reach_beyond_one_slot_of_each_page_that_is_only_described():
    sizes = {"batch": 3, "num_pages": 12, "width": 4, "p": 8, "d": 4}
    drawn = [make_inputs(_gathered("page size"), sizes, Recipe(seed))["seq_lens"] for seed in range(4)]
    assert max(int(lens.max()) for lens in drawn) > 4


def test_a_table_of_slots_has_one_for_each_token():
    indexer = define(
        "indexer", axes(batch_size=None, max_seq_len=None, num_pages=None, page_size=8, h=4),
        {
            "q": tensor("batch_size h"),
            "k_cache": tensor("num_pages page_size h"),
            "seq_lens": tensor("batch_size", "int32", description="Sequence lengths for each batch element."),
            "page_table": tensor(
                "batch_size max_seq_len", "int32",
                description="Maps positions to pages. For page_size=8, encodes (page_idx * 8 + offset).",
            ),
        },
        {"y": tensor("batch_size h")}, NOTHING,
    )  # fmt: skip
    largest = 0
    for sizes, inputs in every(indexer):
        lengths, table = inputs["seq_lens"], inputs["page_table"]
        assert not lengths.numel() or int(lengths.max()) <= sizes["max_seq_len"]
        for length, row in zip(lengths.tolist(), table, strict=True):
            used = row[:length]
            assert not len(used) or (int(used.min()) >= 0 and int(used.max()) < 8 * sizes["num_pages"])
            largest = max(largest, *used.tolist(), 0)
    assert largest >= 8, "slots within pages, not pages"


def test_a_name_says_whose_lengths_they_are_before_a_description_that_speaks_of_both():
    decode = define(
        "decode", axes(batch_size=None, len_indptr=None, num_kv_indices=None, num_pages=None, page_size=16, h=4),
        {
            "q": tensor("batch_size h"),
            "kv_cache": tensor("num_pages page_size h"),
            "kv_indptr": tensor("len_indptr", "int32", description="Page offsets; for decode (single-query) alone."),
            "kv_indices": tensor("num_kv_indices", "int32"),
            "kv_last_page_len": tensor("batch_size", "int32"),
        },
        {"y": tensor("batch_size h")}, NOTHING,
        "len_indptr == batch_size + 1", "num_kv_indices == kv_indptr[-1].item()",
    )  # fmt: skip
    last = torch.cat([inputs["kv_last_page_len"] for _, inputs in every(decode)])
    assert {1, 16} <= set(last.tolist())
    for _, inputs in every(decode):
        pages = inputs["kv_indptr"].diff()
        assert bool((inputs["kv_last_page_len"][pages > 0] >= 1).all())


def test_a_scalar_that_repeats_a_size_has_it():
    definition = define(
        "sized", axes(n=None, intermediate_size=24),
        {"x": tensor("n intermediate_size"), "intermediate_size_param": tensor(None, "int32")},
        {"y": tensor("n")}, NOTHING,
    )  # fmt: skip
    assert {inputs["intermediate_size_param"] for _, inputs in every(definition)} == {24}
