"""Index tensors: partitions, pages, tables and slots that are valid, and as awkward as validity allows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import AxisConflict, Unsatisfiable
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.lengths import arranged, raised, telling
from pytest_flashinfer.inputs.integers.partition import partition
from pytest_flashinfer.inputs.integers.rearrange import rearranged
from pytest_flashinfer.inputs.integers.sequences import draw_sequences
from pytest_flashinfer.inputs.integers.structure import setting_for, structures
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles.stated_promises import stated_promises
from pytest_flashinfer.inputs.seeds import way_of
from pytest_flashinfer.inputs.stale import live_slots
from tests.inputs.contracts import (
    BAGS,
    MLA_PREFILL,
    PAGED_DECODE,
    RAGGED,
    RAGGED_PREFILL,
    ROUTED,
    SLOTS,
    SPARSE,
    TABLE,
    axes,
    define,
    tensor,
)

VARIANTS = ("mixed", "uniform", "single", "one_long", "empty")
DECODE = {"batch": 6, "pages": 40, "num_kv_indices": 20, "len_indptr": 7}


@given(st.integers(0, 300), st.integers(1, 40), st.sampled_from(VARIANTS), st.integers(0, 99))
def test_partitions_sum_to_their_total(total, count, variant, seed):
    lengths = partition(total, count, variant, Random(seed))
    assert len(lengths) == count
    assert sum(lengths) == total
    assert min(lengths) >= 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.sampled_from(VARIANTS), st.integers(0, 99), st.data())
def test_caps_hold_wherever_their_sum_allows(caps, variant, seed, data):
    total = data.draw(st.integers(0, sum(caps)))
    lengths = partition(total, len(caps), variant, Random(seed), caps)
    assert sum(lengths) == total
    assert all(length <= cap for length, cap in zip(lengths, caps, strict=True))


def test_mixed_segments_have_empty_single_and_long_ones():
    seen = [partition(40, 8, "mixed", Random(seed)) for seed in range(20)]
    assert all(0 in lengths and 1 in lengths and max(lengths) > 5 for lengths in seen)


def test_each_variant_is_what_it_is_called():
    rng = Random(0)
    assert partition(7, 2, "uniform", rng) == [4, 3]
    assert sorted(partition(7, 3, "one_long", rng)) == [0, 0, 7]
    assert sorted(partition(7, 3, "single", rng)) == [1, 1, 5]
    assert partition(9, 6, "empty", rng).count(0) >= 4


def test_uniform_segments_are_equal_or_all_but_two_that_the_first_does_not_tell_of():
    seen = {tuple(partition(12, 4, "uniform", Random(seed))) for seed in range(40)}
    assert (3, 3, 3, 3) in seen
    others = seen - {(3, 3, 3, 3)}
    assert len(others) > 2
    assert all(lengths[0] == 3 and sorted(lengths) == [2, 3, 3, 4] for lengths in others)


def test_the_total_of_a_workload_is_kept_and_the_partition_drawn():
    inputs = make_inputs(RAGGED, {"n": 5, "total": 23, "len_indptr": 6, "h": 8}, Recipe(1))
    assert inputs["indptr"].dtype is torch.int32
    assert inputs["indptr"][-1] == 23 == len(inputs["x"])


def ends(definition, sizes, **recipe):
    """Lengths of the segments of many draws, the last one to the end of all there is."""
    total = torch.tensor([sizes["total"]])
    drawn = [make_inputs(definition, sizes, Recipe(seed, **recipe))["offsets"] for seed in range(30)]
    assert all(int(offsets[0]) == 0 for offsets in drawn)
    return [torch.cat((offsets, total)).diff().tolist() for offsets in drawn]


@pytest.mark.parametrize("rules", [BAGS.constraints, ("offsets[0] == 0",)], ids=["room", "one row each"])
def test_the_last_of_segments_that_only_start_runs_to_the_end(rules):
    bags = define("bags", BAGS.axes, BAGS.inputs, BAGS.outputs, "", *rules)
    last = [lengths[-1] for lengths in ends(bags, {"n": 5, "total": 23})]
    assert 0 in last
    assert max(last) > 1
    assert any(lengths[-1] == 23 for lengths in ends(bags, {"n": 5, "total": 23}, structure="one_long"))
    assert ends(bags, {"n": 1, "total": 23}) == [[23]] * 30


def test_pointers_that_hold_ends_keep_their_total():
    inputs = {"x": tensor("total h"), "offsets": tensor("n", "int32", description="Cumulative: where each group ends.")}
    grouped = define("grouped", axes(n=None, total=None, h=8), inputs, {"y": tensor("n h")}, "", "offsets[0] == 0")
    assert all(lengths[-1] == 0 for lengths in ends(grouped, {"n": 5, "total": 23}))


@pytest.mark.parametrize("rule", ["int(group_ends[0]) >= 0", "total == group_ends[-1].item()"])
def test_pointers_that_only_end_have_a_first_segment(rule):
    text = "End of each group: inclusive cumulative sum of the sizes."
    inputs = {"x": tensor("total h"), "w": tensor("n h"), "group_ends": tensor("n", "int64", description=text)}
    rules = ("total == group_ends[-1].item()", "bool((group_ends[1:] >= group_ends[:-1]).all())", rule)
    grouped = define("grouped", axes(n=None, total=None, h=8), inputs, {"y": tensor("total h")}, "", *rules)
    sizes = {"n": 5, "total": 23, "h": 8}
    drawn = [make_inputs(grouped, sizes, Recipe(seed))["group_ends"] for seed in range(30)]
    assert all(len(ends) == 5 and int(ends[-1]) == 23 for ends in drawn)
    assert {int(ends[0]) > 0 for ends in drawn} == {True, False}
    plan, given = plan_of(contract_of(grouped)), {"group_ends": torch.tensor([3, 3, 9])}
    setting = setting_for(contract_of(grouped), plan, {"n": 3, "total": 9, "h": 8}, Recipe(0), given)
    found = draw_sequences(setting)
    assert [3, 0, 6] in (found.q, found.kv, *found.segments.values())


def test_stored_starts_of_segments_say_how_long_the_last_one_is():
    plan, given = plan_of(contract_of(BAGS)), {"offsets": torch.tensor([0, 4, 4])}
    setting = setting_for(contract_of(BAGS), plan, {"n": 3, "total": 9, "h": 8, "rows": 30}, Recipe(0), given)
    assert draw_sequences(setting).q == [4, 0, 5]


def test_pages_of_the_last_sequence_are_live_where_pointers_only_start():
    spec = {**PAGED_DECODE.inputs, "kv_indptr": tensor("batch", "int32")}
    starts = define("starts", PAGED_DECODE.axes, spec, PAGED_DECODE.outputs, "", "kv_indptr[-1] <= num_kv_indices")
    plan = plan_of(contract_of(starts))
    inputs = make_inputs(starts, {"batch": 1, "pages": 9, "num_kv_indices": 3, "len_indptr": 2}, Recipe(0))
    live = live_slots(plan, inputs, 9, 4)
    assert live is not None
    assert int(live.sum()) == 8 + int(inputs["kv_last_page_len"])


def test_pages_are_distinct_unsorted_and_below_the_pool():
    ids = make_inputs(PAGED_DECODE, DECODE, Recipe(3))["kv_indices"]
    assert len(set(ids.tolist())) == 20
    assert ids.max() < 40
    assert ids.tolist() != sorted(ids.tolist())


def test_last_pages_are_full_partial_and_single_and_zero_for_an_empty_sequence():
    inputs = make_inputs(PAGED_DECODE, {**DECODE, "batch": 12, "len_indptr": 13}, Recipe(3))
    lengths, last = inputs["kv_indptr"].diff(), inputs["kv_last_page_len"]
    assert {1, 4} <= set(last.tolist())
    assert torch.equal(lengths == 0, last == 0)
    full = make_inputs(PAGED_DECODE, DECODE, Recipe(3, structure="full_last_page"))
    assert set(full["kv_last_page_len"].tolist()) <= {0, 4}


def test_a_contract_may_give_empty_sequences_a_last_page_too():
    strict = define("strict", PAGED_DECODE.axes, PAGED_DECODE.inputs, PAGED_DECODE.outputs, "",
                    *PAGED_DECODE.constraints, "int(kv_last_page_len.min()) >= 1")  # fmt: skip
    assert make_inputs(strict, DECODE, Recipe(3, structure="empty"))["kv_last_page_len"].min() == 1


def paged(reference="", description="", outputs=None, *constraints):
    every = {**PAGED_DECODE.outputs, **(outputs or {})}
    return define("paged", PAGED_DECODE.axes, PAGED_DECODE.inputs, every, reference, *PAGED_DECODE.constraints,
                  *constraints, description=description)  # fmt: skip


def shares(definition):
    contract = contract_of(definition)
    return "shared" in structures(contract, plan_of(contract))


def test_sequences_share_pages_where_nobody_writes_into_them_unless_the_contract_speaks_against_it():
    assert shares(paged())
    assert not shares(paged(description="Page ids are distinct."))
    assert not shares(paged(description="No page is listed twice."))
    assert not shares(paged("", "", None, "kv_indices.unique().numel() == num_kv_indices"))
    assert not shares(PAGED_DECODE), "its reference asserts that they are different"
    assert not shares(paged("def run(q, k_cache, *others):\n    k_cache[0, 0] = 1\n    return q"))
    written = {"k_out": tensor("pages page_size kv_heads d", "float16", param="k_cache")}
    assert not shares(paged(outputs=written))
    assert shares(paged(outputs=written, description="Pages may be shared between sequences."))


def test_sequences_that_share_pages_are_as_long_in_every_other_draw():
    alike = [max(drawn) - min(drawn) <= 1 for drawn in (partition(20, 6, "shared", Random(seed)) for seed in range(60))]
    assert 20 < sum(alike) < 45


def pages_of(inputs):
    ids, ends = inputs["kv_indices"].tolist(), inputs["kv_indptr"].tolist()
    return [ids[a:b] for a, b in itertools.pairwise(ends)]


def test_shared_pages_are_at_the_beginning_of_sequences_all_but_one_and_twice_in_one():
    written = {"k_out": tensor("pages page_size kv_heads d", "float16", param="k_cache")}
    told = paged(outputs=written, description="Pages may be shared between sequences.")
    first, other = (
        [pages_of(make_inputs(definition, DECODE, Recipe(seed, structure="shared"))) for seed in range(40)]
        for definition in (told, paged())
    )
    for drawn in (first, other):
        assert any(len({n for row in rows for n in row}) < 20 for rows in drawn)
    twice = [sum(any(len(set(row)) < len(row) for row in rows) for rows in drawn) for drawn in (first, other)]
    assert twice[0] == 0, "of what is written twice the order would matter"
    assert 5 < twice[1] < 38
    pairs = [pair for rows in other for pair in itertools.combinations(rows, 2)]
    assert any(len(a) == len(b) > 2 and a[0] == b[0] and a[-1] == b[-1] and a != b for a, b in pairs)


def test_what_no_sequence_reads_shows_when_it_is_read():
    contract = contract_of(PAGED_DECODE)
    inputs = make_inputs(PAGED_DECODE, DECODE, Recipe(3, structure="stale_nan"))
    live = live_slots(plan_of(contract), inputs, 40, 4)
    assert live is not None
    assert not live.all()
    for name in ("k_cache", "v_cache"):
        assert torch.equal(inputs[name].isnan().all((2, 3)), ~live)
    assert not live[0].any(), "padded tables point there"
    big = make_inputs(PAGED_DECODE, DECODE, Recipe(3, structure="stale_big"))["k_cache"]
    assert big.isfinite().all()
    assert (big[~live] > 1000).all()


@pytest.mark.parametrize(
    ("text", "own", "offered", "nan"),
    [
        ("Pages that are not listed hold arbitrary data.", "Keys.", True, True),
        ("Pages that are not listed hold arbitrary finite data.", "Keys.", False, False),
        ("Slots past the end are stale but finite. All else is usual.", "Keys.", False, False),
        ("Slots past the end are stale.", "Finite keys.", True, False),
        ("The unfilled end of a page holds leftovers, NaN included.", "Keys.", True, True),
        ("The rest of a page holds what is left over. There are no NaNs.", "Keys, finite.", True, False),
        ("What is left of a page is zero.", "Keys.", False, False),
    ],
)
def test_what_nobody_reads_is_finite_where_words_say_so(text, own, offered, nan):
    """A kernel may multiply it by a weight of 0."""
    inputs = PAGED_DECODE.inputs
    specs = {name: replace(spec, description=own) if name == "k_cache" else spec for name, spec in inputs.items()}
    definition = replace(PAGED_DECODE, description=text, inputs=specs)
    contract = contract_of(definition)
    assert ("stale_nan" in structures(contract, plan_of(contract))) is offered
    if offered:
        made = make_inputs(definition, DECODE, Recipe(3, structure="stale_nan"))["k_cache"]
        assert bool(made.isnan().any()) is nan
        assert nan or (made.abs() > 1000).any()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("structure", ["stale_nan", "stale_big"])
def test_caches_of_8_bit_floats_show_it_too(dtype, structure):
    caches = {name: replace(PAGED_DECODE.inputs[name], dtype=dtype) for name in ("k_cache", "v_cache")}
    definition = replace(PAGED_DECODE, inputs={**PAGED_DECODE.inputs, **caches})
    inputs = make_inputs(definition, DECODE, Recipe(3, structure=structure))
    live = live_slots(plan_of(contract_of(definition)), inputs, 40, 4)
    assert (inputs["k_cache"].float()[~live] == torch.finfo(inputs["k_cache"].dtype).max).all()


def test_padding_that_may_be_anything_is_at_times_no_page():
    text = "Entries past the last block are padding with arbitrary values."
    specs = {**TABLE.inputs, "block_table": tensor("batch_size max_blocks", "int32")}
    loose = replace(TABLE, inputs=specs, description=text)
    sizes = {"batch_size": 6, "num_blocks": 30, "max_blocks": 4}
    made = [make_inputs(loose, sizes, Recipe(seed)) for seed in range(8)]
    assert [int(each["block_table"].max()) >= 30 for each in made] == [way_of(n, "junk", 2) == 1 for n in range(8)]
    for each in made:
        owned = torch.arange(4) < -(-each["seq_lens"] // 4)[:, None]
        assert (each["block_table"][owned] < 30).all()
    for each in range(8):
        assert make_inputs(replace(loose, description=""), sizes, Recipe(each))["block_table"].max() < 30


def test_a_token_names_an_expert_twice_where_it_may():
    inputs = {"x": tensor("n h"), "topk_ids": tensor("n k", "int32")}
    routed = define("routed", axes(n=None, h=8, k=3, experts=9), inputs, {"y": tensor("n h")}, "",
                    "bool((topk_ids < experts).all())", description="Tokens may name an expert twice.")  # fmt: skip
    ids = [make_inputs(routed, {"n": 8}, Recipe(seed))["topk_ids"] for seed in range(8)]
    assert [bool((each[:, 0] == each[:, -1]).any()) for each in ids] == [way_of(n, "repeats", 2) == 1 for n in range(8)]
    silent = replace(routed, description="")
    for seed in range(4):
        once = make_inputs(silent, {"n": 8}, Recipe(seed))["topk_ids"].sort(1).values
        assert (once.diff(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("promise", "text"),
    [
        ("repeats", "A token may name an expert twice."),
        ("holes", "-1 is padding, anywhere in a row"),
        ("junk", "Padding is arbitrary"),
    ],
)
def test_what_is_said_of_one_input_goes_for_that_one_and_what_the_definition_says_for_all(promise, text):
    inputs = {"a": tensor("n k", "int32", description=text), "b": tensor("n k", "int32", description="Ids")}
    whole = define("d", axes(n=None, k=3), inputs, {"y": tensor("n k")}, "")
    assert getattr(stated_promises(whole), promise) == {"a"}
    each = replace(whole, description=text, inputs={"a": tensor("n k"), "b": tensor("n k")})
    assert getattr(stated_promises(each), promise) == {"a", "b"}
    apart = replace(inputs["a"], description="-1 is padding"), replace(inputs["b"], description="Anywhere in the pool")
    assert not stated_promises(replace(whole, inputs=dict(zip("ab", apart, strict=True)))).holes


def test_queries_never_outnumber_keys():
    sizes = {"total_q": 30, "num_pages": 20, "len_indptr": 6, "num_kv_indices": 9}
    for structure in ("mixed", "uniform", "one_long", "q_equals_kv"):
        inputs = make_inputs(MLA_PREFILL, sizes, Recipe(2, structure=structure))
        pages, last = inputs["kv_indptr"].diff(), inputs["kv_last_page_len"]
        keys = (pages - 1).clamp(min=0) * 4 + last
        assert (inputs["qo_indptr"].diff() <= keys).all()
        assert inputs["qo_indptr"][-1] == 30


def test_a_listed_workload_with_more_queries_than_keys_still_gets_inputs():
    inputs = make_inputs(RAGGED_PREFILL, {"total_q": 9, "total_kv": 4, "len_indptr": 3}, Recipe(0))
    assert inputs["qo_indptr"].tolist()[-1] == 9


def test_tables_hold_distinct_blocks_and_then_padding():
    sizes = {"batch_size": 5, "num_blocks": 40, "max_blocks": 6}
    inputs = make_inputs(TABLE, sizes, Recipe(4))
    used = inputs["block_table"][inputs["block_table"] >= 0]
    assert len(used.unique()) == len(used)
    assert ((inputs["block_table"] >= 0).sum(1) == -(-inputs["seq_lens"] // 4)).all()


@pytest.mark.parametrize(("name", "text"), [
    ("seqused_k", ""), ("filled", ""), ("n_live", "Number of cached tokens of each request, 0 allowed."),
])  # fmt: skip
def test_lengths_are_known_by_their_words_or_by_the_table_that_they_fill(name, text):
    """A table whose entries are padding from there on has no valid case else."""
    inputs = {**TABLE.inputs, name: tensor("batch_size", "int32", description=text)}
    del inputs["seq_lens"]
    bounds = f"bool((({name} >= 0) & ({name} <= max_blocks * block_size)).all())"
    used = f"torch.arange(max_blocks)[None, :] * block_size < {name}[:, None]"
    rules = (bounds, f"bool(torch.where({used}, block_table >= 0, block_table == -1).all())")
    padded = replace(TABLE, inputs=inputs, constraints=rules if name == "filled" else rules[1:])
    for seed in range(20):
        made = make_inputs(padded, {"batch_size": 6, "num_blocks": 30, "max_blocks": 4}, Recipe(seed))
        assert ((made["block_table"] >= 0).sum(1) == -(-made[name] // 4)).all()


@pytest.mark.parametrize("batch", [1, 3])
def test_lengths_are_none_one_all_and_around_a_page(batch):
    sizes = {"batch_size": batch, "num_blocks": 40, "max_blocks": 6}
    seen = {n for seed in range(80) for n in make_inputs(TABLE, sizes, Recipe(seed))["seq_lens"].tolist()}
    assert {0, 1, 3, 4, 5, 24} <= seen
    assert any(n % 4 for n in seen - {1, 3, 5})


def test_lengths_that_are_equal_are_mostly_no_whole_pages():
    sizes = {"batch_size": 3, "num_blocks": 40, "max_blocks": 6}
    drawn = [make_inputs(TABLE, sizes, Recipe(seed, structure="uniform"))["seq_lens"].unique() for seed in range(40)]
    assert all(len(lengths) == 1 for lengths in drawn)
    whole = sum(int(lengths) % 4 == 0 for lengths in drawn)
    assert 0 < whole < 20


@pytest.mark.parametrize("text", ["Tokens of each sequence in the cache, the query's own included", "Keys, by query"])
def test_lengths_of_keys_are_those_of_keys_where_their_description_speaks_of_queries_too(text):
    inputs = {**TABLE.inputs, "seq_lens": tensor("batch_size", "int32", description=text)}
    rules = ("bool((seq_lens >= 0).all())", "bool(((block_table >= 0).sum(dim=1) * block_size >= seq_lens).all())")
    table = "block_table" if "block_table" in inputs else next(name for name in inputs if "table" in name)
    rules = tuple(rule.replace("block_table", table) for rule in rules)
    told = define("told", TABLE.axes, inputs, TABLE.outputs, "", *rules)
    sizes = {"batch_size": 3, "num_blocks": 40, "max_blocks": 6}
    seen = {n for seed in range(30) for n in make_inputs(told, sizes, Recipe(seed))["seq_lens"].tolist()}
    assert len(seen) > 5
    assert max(seen) > 8


def test_no_sequence_is_empty_where_that_is_forbidden():
    rules = ("max(seq_lens) <= max_blocks * block_size", "min(seq_lens) >= 1")
    strict = define("strict", TABLE.axes, TABLE.inputs, TABLE.outputs, "", *rules)
    for structure in structures(contract_of(strict), plan_of(contract_of(strict))):
        for batch in (1, 4):
            sizes = {"batch_size": batch, "num_blocks": 40, "max_blocks": 2}
            assert make_inputs(strict, sizes, Recipe(1, structure=structure))["seq_lens"].min() >= 1


@given(st.integers(1, 64), st.integers(0, 5), st.integers(0, 9), st.sampled_from(VARIANTS), st.data())
def test_lengths_stay_within_bounds_and_hold_what_is_wanted(page, low, count, variant, data):
    high, rng = low + data.draw(st.integers(0, 600)), Random(data.draw(st.integers(0, 99)))
    lengths = arranged(telling(page, low, high, rng), count, variant, page, rng)
    wanted = data.draw(st.integers(0, high * count))
    lengths = raised(lengths, wanted - sum(lengths), [high] * count)
    assert len(lengths) == count
    assert all(low <= n <= high for n in lengths)
    assert sum(lengths) >= wanted


def test_experts_differ_within_a_row_and_loads_are_uneven():
    sizes = {"num_tokens": 64}
    ids = make_inputs(ROUTED, sizes, Recipe(0))["topk_ids"]
    assert (ids[:, 0] != ids[:, 1]).all()
    load = ids.flatten().bincount(minlength=6)
    assert load.max() > 2 * load.min()
    one = make_inputs(ROUTED, sizes, Recipe(0, structure="one_long"))["topk_ids"]
    assert len(one.unique()) == 2


def test_slots_are_distinct_and_sometimes_skipped():
    drawn = [make_inputs(SLOTS, {"batch_size": 6, "pool_size": 9}, Recipe(seed))["state_indices"] for seed in range(8)]
    assert any((ids == -1).any() for ids in drawn)
    for ids in drawn:
        live = ids[ids >= 0]
        assert len(live.unique()) == len(live)
        assert ids.max() < 9


def test_sparse_rows_end_in_minus_one():
    ids = make_inputs(SPARSE, {"num_tokens": 9, "num_pages": 3}, Recipe(1))["sparse_indices"]
    lengths = (ids >= 0).sum(1)
    assert {1, 6} <= set(lengths.tolist())
    assert ids.max() < 12


def test_indices_without_anything_to_point_at_are_a_conflict_and_no_crash():
    listed = Workload("w", {}, {name: InputSpec("random") for name in PAGED_DECODE.inputs})
    with pytest.raises(AxisConflict, match=r"kv_indices < pages.*2 page indices and pages = 0") as caught:
        make_inputs(PAGED_DECODE, {**DECODE, "pages": 0, "num_kv_indices": 2}, Recipe(0), workload=listed)
    assert "\n" not in str(caught.value)


def test_a_total_without_segments_is_a_conflict():
    with pytest.raises(AxisConflict, match="no segments"):
        make_inputs(RAGGED, {"n": 0, "total": 3, "len_indptr": 1, "h": 8}, Recipe(0))


def test_a_constraint_on_data_that_no_rule_understands_is_named():
    constraint = "int((x * x).sum()) == 12345678"
    odd = define("odd", axes(n=None), {"x": tensor("n", "int32")}, {"y": tensor("n")}, "", constraint)
    with pytest.raises(Unsatisfiable, match=r"\(x \* x\)\.sum\(\)"):
        make_inputs(odd, {"n": 3}, Recipe(0))


def test_bounds_in_constraints_bound_the_data():
    bounded = define("bounded", axes(n=None, top=7), {"x": tensor("n", "int32")}, {"y": tensor("n")}, "",
                     "int(x.min()) >= 3 and int(x.max()) < top")  # fmt: skip
    drawn = make_inputs(bounded, {"n": 200}, Recipe(0))["x"]
    assert set(drawn.tolist()) == {3, 4, 5, 6}


def test_a_scalar_that_bounds_the_data_follows_from_it():
    inputs = {"x": tensor("total"), "indptr": tensor("len_indptr", "int32"), "max_len": tensor(None, "int32")}
    rules = ("total == indptr[-1].item()", "max(indptr[1:] - indptr[:-1]) <= max_len")
    tied = define("tied", axes(total=None, len_indptr=None), inputs, {"y": tensor("total")}, "", *rules)
    inputs = make_inputs(tied, {"total": 20, "len_indptr": 4}, Recipe(5))
    assert inputs["max_len"] == int(inputs["indptr"].diff().max())


def test_a_single_id_is_an_end_of_its_range_in_some_draws_only():
    one = define("one", axes(n=None, rows=None), {"table": tensor("rows n"), "index": tensor("n", "int64")},
                 {"y": tensor("n")}, "def run(table, index):\n    return table[index, 0]\n")  # fmt: skip
    ids = [int(make_inputs(one, {"n": 1, "rows": 9}, Recipe(seed))["index"]) for seed in range(60)]
    assert {0, 8} < set(ids)
    assert 10 < sum(0 < n < 8 for n in ids) < 50

_POOLS = {
    "token_ids": ({"table": tensor("vocab h")}, "n"),
    "slot_mapping": ({"cache": tensor("rows h"), "x": tensor("n h")}, "n"),
    "positions": ({"cos_sin_cache": tensor("rows h"), "q": tensor("n h")}, "n"),
    "topk_ids": ({"weights": tensor("num_experts h"), "x": tensor("n h")}, "n k"),
    "sparse_indices": ({"kv_cache": tensor("num_pages h"), "q": tensor("n h")}, "n k"),
    "block_table": ({"kv_cache": tensor("num_pages page h"), "seq_lens": tensor("n", "int32")}, "n k"),
    "which": ({"bank": tensor("rows h")}, "n"),
}  # fmt: skip


def pointing(name, dtype):
    """Return a definition with ids of a narrow dtype that point into a pool with more rows than it has numbers."""
    inputs, shape = _POOLS[name]
    sizes = axes(n=None, **dict.fromkeys(("rows", "num_experts", "num_pages", "vocab"), 70_000), page=2, k=4, h=1)
    reference = f"def run({', '.join((*inputs, name))}):\n    return {next(iter(inputs))}[{name}.long()]\n"
    return define("narrow", sizes, {**inputs, name: tensor(shape, dtype)}, {"y": tensor("n h")}, reference)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", _POOLS)
def test_ids_of_a_narrow_dtype_are_those_that_it_has(name, dtype):
    definition, most = pointing(name, dtype), torch.iinfo(getattr(torch, dtype)).max
    contract, found = contract_of(definition), []
    for seed, structure in enumerate(structures(contract, plan_of(contract)) * 2):
        inputs = make_inputs(definition, {"n": 12}, Recipe(seed, structure=structure))
        moved = rearranged(definition, {"n": 12}, inputs, seed)
        for values in (inputs[name], moved.get(name, inputs[name])):
            found += values.flatten().tolist()
    assert min(found) >= -1
    assert most * 0.8 < max(found)


def test_more_ids_that_differ_than_a_dtype_has_are_refused():
    with pytest.raises(AxisConflict, match="200 ids, of which int8 has 128"):
        make_inputs(pointing("slot_mapping", "int8"), {"n": 200}, Recipe(0))
    lengths = replace(RAGGED, inputs={**RAGGED.inputs, "indptr": tensor("len_indptr", "int8")})
    with pytest.raises(AxisConflict, match=r"`indptr is int8` does not hold for values from 0 to 300"):
        make_inputs(lengths, {"n": 5, "total": 300, "len_indptr": 6}, Recipe(0))


@pytest.mark.parametrize(
    ("first", "description", "late"),
    [
        ("int(offsets[0]) >= 0", "Row offsets.", True),
        ("0 <= offsets[0].item()", None, True),
        ("int(offsets[0]) == 0", "Row offsets.", False),
        ("int(offsets[0]) >= 0", "Row offsets, beginning with 0.", False),
    ],
)
def test_the_first_segment_begins_after_zero_where_it_may(first, description, late):
    inputs = {"x": tensor("rows h"), "offsets": tensor("ends", "int32", description=description)}
    rules = ("ends == segments + 1", first, "int(offsets[-1]) <= rows", "bool((offsets[1:] >= offsets[:-1]).all())")
    definition = define("late", axes(rows=None, segments=None, ends=None, h=2), inputs, {"y": tensor("segments h")},
                        "def run(x, offsets):\n    return None\n", *rules)  # fmt: skip
    sizes = {"rows": 20, "segments": 4, "ends": 5}
    drawn = [make_inputs(definition, sizes, Recipe(seed))["offsets"].tolist() for seed in range(24)]
    assert any(each[0] > 0 for each in drawn) is late
    assert any(each[-1] < 20 for each in drawn)
    assert all(each[0] >= 0 and each[-1] <= 20 and each == sorted(each) for each in drawn)


def test_by_some_seeds_nearly_all_indices_are_one():
    """Counters that are too narrow, and rows that many add to at once, show nowhere else."""
    counted = define(
        "counted", axes(n=None, bins=64), {"x": tensor("n", "int32")}, {"h": tensor("bins", "int32")},
        "def run(x):\n    return torch.bincount(x, minlength=64).int()", "(x >= 0).all()", "(x < bins).all()",
    )  # fmt: skip
    drawn = [make_inputs(counted, {"n": 300}, Recipe(seed))["x"].long().bincount(minlength=64) for seed in range(40)]
    crowded = sum(int(each.max()) >= 298 for each in drawn)
    assert 0 < crowded < 20
    assert any(int(each.argmax()) not in (0, 63) for each in drawn if int(each.max()) >= 298)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("((m == 0) | (m == 1)).all()", {0, 1}),
        ("((m == -1) | (m == 1)).all()", {-1, 1}),
        ("((m == 2) | (m == 4) | (m == 8)).all()", {2, 4, 8}),
    ],
)
def test_integers_of_a_few_values_take_all_of_them(dtype, rule, allowed):
    """In a table of signs -1 is a number, and no padding."""
    sizes, inputs = axes(n=None), {"x": tensor("n"), "m": tensor("n", dtype)}
    signed = define("signed", sizes, inputs, {"y": tensor("n")}, "def run(x, m):\n    return x * m", rule)
    for seed in range(4):
        drawn = set(make_inputs(signed, {"n": 64}, Recipe(seed))["m"].tolist())
        assert drawn == {n for n in allowed if n >= 0 or dtype != "uint8"}
