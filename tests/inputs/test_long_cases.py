"""One long sequence or sum comes early, with all else small; so do lengths around numbers of the reference."""

from __future__ import annotations

from random import Random

import pytest

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles.literals import literals
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.long_cases import drawn_lengths, early_wishes, late_wishes, length, lines
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import (
    BAGS,
    DELTA,
    DENSE,
    MLA_PREFILL,
    PAGED_DECODE,
    QUANTISED,
    RAGGED,
    RAGGED_PREFILL,
    ROPE,
    STEP,
    TABLE,
    axes,
    define,
    tensor,
)

FIRST = 15
MATMUL = define("bmm", axes(b=None, m=None, n=None, k=None), {"x": tensor("b m k"), "y": tensor("b n k")},
                {"z": tensor("b m n")}, "")  # fmt: skip


def chunked(reference, **constants):
    return define(
        "chunked", axes(total_q=None, total_kv=None, len_indptr=None, **constants),
        {"q": tensor("total_q"), "k": tensor("total_kv"), "qo_indptr": tensor("len_indptr", "int32"),
         "kv_indptr": tensor("len_indptr", "int32")},
        {"out": tensor("total_q")}, reference,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "pointers", "page"),
    [(RAGGED, "indptr", 1), (PAGED_DECODE, "kv_indptr", 4), (MLA_PREFILL, "kv_indptr", 4),
     (RAGGED_PREFILL, "kv_indptr", 1), (DELTA, "cu_seqlens", 1)], ids=lambda value: getattr(value, "name", None)
)  # fmt: skip
def test_one_sequence_passes_the_sizes_of_blocks_early(definition, pointers, page):
    every = [make_inputs(definition, *case)[pointers].diff().tolist() for case in edge_cases(definition)]
    longest = [page * max(lengths, default=0) for lengths in every]
    assert sum(n > 128 for n in longest[:FIRST]) >= 2
    assert max(longest[:FIRST]) > 256
    assert any(512 < n <= 1024 for n in longest)
    assert any(1024 < n < 4000 for n in longest)


def test_a_long_sequence_has_one_query_or_fewer_than_keys():
    drawn = [make_inputs(RAGGED_PREFILL, *case) for case in edge_cases(RAGGED_PREFILL)[:FIRST]]
    sizes = [(int(each["qo_indptr"][-1]), max(each["kv_indptr"].diff().tolist(), default=0)) for each in drawn]
    long = [(queries, keys) for queries, keys in sizes if keys > 128]
    assert any(queries == 1 for queries, _ in long)
    assert any(1 < queries < keys for queries, keys in long)


def test_a_table_is_as_wide_as_a_long_sequence():
    first = [make_inputs(TABLE, *case)["seq_lens"].tolist() for case in edge_cases(TABLE)[:FIRST]]
    assert max(max(lengths, default=0) for lengths in first) > 256


@pytest.mark.parametrize(
    ("definition", "expected"),
    [(DENSE, {"KV"}), (MATMUL, {"k"}), (RAGGED_PREFILL, {"total_kv"}), (TABLE, {"max_blocks"}), (BAGS, {"total"}),
     (STEP, set()), (QUANTISED, set())], ids=lambda value: getattr(value, "name", None)
)  # fmt: skip
def test_lines_are_what_sequences_and_sums_go_along(definition, expected):
    assert lines(grid_of(definition)).keys() == expected


def test_a_long_sum_comes_early_alone_and_with_many_outputs():
    first = [sizes for sizes, _ in edge_cases(MATMUL)[:FIRST]]
    assert any(sizes["k"] > 128 and sizes["m"] * sizes["n"] <= 4 for sizes in first)
    assert any(sizes["k"] > 256 and sizes["m"] * sizes["n"] >= 64 for sizes in first)
    assert any(min(sizes["m"], sizes["n"], sizes["k"]) >= 17 for sizes in first)


@pytest.mark.parametrize("definition", [RAGGED, PAGED_DECODE, RAGGED_PREFILL, DENSE, MATMUL], ids=lambda d: d.name)
def test_long_cases_stay_within_what_they_may_have(definition):
    grid = grid_of(definition, (), 1 << 12)
    lengths = drawn_lengths(Random(1))
    assert all(grid.fits(grid.settled(wish), 1 << 20) for wish, _ in early_wishes(grid, lengths, Random(1)))
    assert all(grid.fits(grid.settled(wish)) for wish, _ in late_wishes(grid, lengths))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("CHUNK = 24\ndef run(q):\n    return q // CHUNK", (24,)),
        ("def run(q):\n    block = 48\n    return [q[i:i + block] for i in range(0, len(q), block)]", (48,)),
        ("def run(q):\n    return q[:100] if len(q) > 200 else q", (200, 100)),
        ("def run(q):\n    return (q / 448).clamp(-240, 240) * 12", ()),
        ("def run(q):\n    return q.shape[1] // 2", ()),
        ("def run(q):\n    assert q.shape[1] == 32", ()),
        ("def run(q):\n    return q % 32", (32,)),
        ("def run(q): not python", ()),
    ],
)
def test_numbers_that_sizes_are_divided_by_and_compared_with(code, expected):
    assert set(literals(contract_of(chunked(code, d=32)))) == set(expected)


def test_a_switch_that_constraints_speak_of_is_no_length():
    inputs = {"x": tensor("n h"), "mode": tensor(None, "int32")}
    switched = define("gelu", axes(n=None, h=8), inputs, {"y": tensor("n h")}, "", "mode == 0 or mode == 1")
    grid = grid_of(switched)
    assert "mode" in grid.contract.free
    cases = edge_cases(switched)
    assert [length(grid, *case) for case in cases] == [sizes["n"] for sizes, _ in cases]
    early = early_wishes(grid, drawn_lengths(Random(1)), Random(1))
    assert all("mode" not in wish or wish["mode"] <= 1 for wish, _ in early)


@pytest.mark.parametrize(
    ("definition", "pool", "ids"), [(PAGED_DECODE, "pages", "kv_indices"), (ROPE, "max_position", "positions")]
)
def test_there_is_much_to_point_at_early(definition, pool, ids):
    """Offsets in 16 bits wrap there, tables of a fixed size end before, and nothing else is large."""
    first = edge_cases(definition, max_elements=1 << 19)[: FIRST + 2]
    [(sizes, recipe)] = [case for case in first if case[0][pool] > 1024]
    assert max(size for name, size in sizes.items() if name not in {pool, *definition.const_axes}) < 40
    drawn = [make_inputs(definition, sizes, recipe.with_seed_after(more))[ids].max() for more in range(6)]
    assert sum(largest > 1024 for largest in drawn) > 3, "where they count up it may be from 0 on"


def test_lengths_around_a_number_of_the_reference_come_early_and_with_one_query():
    definition = chunked("CHUNK = 24\ndef run(q, k, qo_indptr, kv_indptr):\n    return q // CHUNK")
    cases = [(sizes["total_q"], sizes["total_kv"]) for sizes, _ in edge_cases(definition) if sizes["len_indptr"] == 2]
    assert {(1, 24), (1, 48), (1, 23), (12, 25), (12, 49)} <= set(cases)
    assert any(sizes["total_kv"] == 48 for sizes, _ in edge_cases(definition)[:16])


def test_the_length_of_a_case_is_that_of_its_longest_sequence():
    grid = grid_of(RAGGED)
    sizes = {"n": 129, "total": 258, "len_indptr": 130, "h": 8}
    assert length(grid, sizes, Recipe(0)) == 2
    assert length(grid, sizes, Recipe(0, structure="one_long")) == 258
    assert length(grid, {"n": 1, "total": 150, "len_indptr": 2, "h": 8}, Recipe(0)) == 150
    assert length(grid_of(STEP), {"n": 129, "h": 8}, Recipe(0)) == 129
    assert length(grid_of(TABLE), {"batch_size": 129, "max_blocks": 3, "num_blocks": 500}, Recipe(0)) == 12
