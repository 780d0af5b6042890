"""Lengths that constraints tie to each other, to totals and to axes: nearly whatever is drawn is valid."""

from __future__ import annotations

import ast
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.constraints import parse
from pytest_flashinfer.inputs.constraints.solved import solved
from pytest_flashinfer.inputs.constraints.steps import with_steps
from pytest_flashinfer.inputs.constraints.trees import demanded
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.strategies import case_strategy, edge_cases
from tests.inputs.contracts import axes, define, tensor

INTS = "int32"
_PADDED = {
    "q": tensor("batch max_q d"), "k": tensor("batch max_kv d"), "q_lens": tensor("batch", INTS),
    "kv_lens": tensor("batch", INTS),
}  # fmt: skip
_PADDED_AXES = axes(batch=None, max_q=None, max_kv=None, d=4)
_RAGGED = {
    "q": tensor("total_q d"), "k": tensor("total_kv d"), "qo_indptr": tensor("n1", INTS),
    "kv_indptr": tensor("n1", INTS),
}  # fmt: skip
_RAGGED_AXES = axes(total_q=None, total_kv=None, n1=None, d=4)
_ENDS = ("total_q == qo_indptr[-1].item()", "total_kv == kv_indptr[-1].item()")
_PACKED = {"x": tensor("total d"), "seq_lens": tensor("batch", INTS), "prefix_lens": tensor("batch", INTS)}
_PACKED_AXES = axes(total=None, batch=None, d=4)
_PAGED = {
    "q": tensor("total_q d"), "cache": tensor("pages page_size d"), "block_table": tensor("batch max_pages", INTS),
    "seq_lens": tensor("batch", INTS), "cu_seqlens_q": tensor("n1", INTS),
}  # fmt: skip
_PAGED_AXES = axes(total_q=None, batch=None, n1=None, pages=None, max_pages=None, page_size=4, d=4)
_ONE = {"x": tensor("total d"), "cu_seqlens": tensor("n1", INTS)}
_ONE_AXES = axes(total=None, n1=None, d=4)
_BESIDE = {**_ONE, "lens": tensor("batch", INTS)}
_BESIDE_AXES = axes(total=None, n1=None, batch=None, d=4)
_BESIDE_ENDS = ("n1 == batch + 1", "total == cu_seqlens[-1].item()")

CONTRACTS = {
    "one_below_the_other": (_PADDED_AXES, _PADDED, "(q_lens <= kv_lens).all()", "(q_lens >= 1).all()",
                            "q_lens.max() <= max_q", "kv_lens.max() <= max_kv"),
    "all_in_one": (_PADDED_AXES, _PADDED, "((q_lens >= 0) & (q_lens < kv_lens) & (kv_lens <= max_kv)).all()",
                   "(q_lens <= max_q).all()"),
    "in_a_loop": (_PADDED_AXES, _PADDED, "all(0 < a <= b for a, b in zip(q_lens.tolist(), kv_lens.tolist()))",
                  "max(q_lens) <= max_q", "max(kv_lens) <= max_kv"),
    "by_index": (_PADDED_AXES, _PADDED, "all(q_lens[i] <= kv_lens[i] for i in range(batch))", "q_lens.min() >= 0",
                 "max(q_lens) <= max_q", "max(kv_lens) <= max_kv"),
    "added": (_PADDED_AXES, _PADDED, "(q_lens + kv_lens <= max_kv).all()", "(q_lens <= max_q).all()",
              "(q_lens >= 0).all()", "(kv_lens >= 0).all()"),
    "rows_appended_to_pages": (
        axes(nnz=None, batch=None, n1=None, pages=None, used=None, page_size=4, d=4),
        {"rows": tensor("nnz d"), "cache": tensor("pages page_size d"), "append_indptr": tensor("n1", INTS),
         "page_table": tensor("used", INTS), "page_indptr": tensor("n1", INTS), "last_page_len": tensor("batch", INTS)},
        "n1 == batch + 1", "append_indptr[-1].item() == nnz", "page_indptr[-1].item() == used",
        ("all((1 <= n <= page_size) if p > 0 else n == 0 "
         "for p, n in zip(page_indptr.diff().tolist(), last_page_len.tolist()))"),
        ("all(a <= max((p - 1) * page_size + n, 0) for a, p, n in "
         "zip(append_indptr.diff().tolist(), page_indptr.diff().tolist(), last_page_len.tolist()))"),
    ),
    "segments": (_RAGGED_AXES, _RAGGED, *_ENDS,
                 "((qo_indptr[1:] - qo_indptr[:-1]) <= (kv_indptr[1:] - kv_indptr[:-1])).all()"),
    "diff": (_RAGGED_AXES, _RAGGED, *_ENDS, "torch.all(torch.diff(qo_indptr) <= kv_indptr.diff())"),
    "no_empty_segment": (_RAGGED_AXES, _RAGGED, *_ENDS, "((kv_indptr[1:] - kv_indptr[:-1]) >= 1).all()"),
    "rising": (_ONE_AXES, _ONE, "total == cu_seqlens[-1].item()", "(cu_seqlens[1:] > cu_seqlens[:-1]).all()"),
    "short": (_ONE_AXES, _ONE, "total == cu_seqlens[-1].item()", "n1 >= 2",
              "(cu_seqlens[1:] - cu_seqlens[:-1] <= 16).all()"),
    "blocks": (_ONE_AXES, _ONE, "total == cu_seqlens[-1].item()", "n1 >= 2",
               "((cu_seqlens[1:] - cu_seqlens[:-1]) % 8 == 0).all()"),
    "longest": (axes(total=None, n1=None, longest=None, d=4), {**_ONE, "mask": tensor("longest longest", "bool")},
                "n1 >= 2", "total == cu_seqlens[-1].item()",
                "longest == (cu_seqlens[1:] - cu_seqlens[:-1]).max().item()"),
    "greatest": (axes(batch=None, most=None, d=4), {"x": tensor("batch most d"), "lens": tensor("batch", INTS)},
                 "batch >= 1", "most == lens.max().item()"),
    "sum": (_PACKED_AXES, _PACKED, "total == seq_lens.sum().item()", "(prefix_lens <= seq_lens).all()",
            "(prefix_lens >= 0).all()"),
    "sum_of_no_empty_ones": (_PACKED_AXES, _PACKED, "int(sum(seq_lens)) == total", "(seq_lens >= 1).all()"),
    "counts": (axes(total=None, experts=8, d=4), {"x": tensor("total d"), "tokens_per_expert": tensor("experts", INTS)},
               "int(tokens_per_expert.sum()) == total"),
    "lengths_beside_pointers": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS, "(cu_seqlens[1:] == lens.cumsum(0)).all()"),
    "lengths_from_pointers": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS, "(cu_seqlens[1:] - cu_seqlens[:-1] == lens).all()"),
    "blocks_for_lengths": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS,
                           "(cu_seqlens[1:] - cu_seqlens[:-1] == (lens + 4 - 1) // 4).all()"),
    "ceilings_for_lengths": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS, "(cu_seqlens.diff() == cdiv(lens, 4)).all()"),
    "segments_below_lengths": (_PAGED_AXES, _PAGED, "n1 == batch + 1", "total_q == cu_seqlens_q[-1].item()",
                               "seq_lens.max() <= max_pages * page_size",
                               "(seq_lens >= cu_seqlens_q[1:] - cu_seqlens_q[:-1]).all()"),
    "neighbours_in_a_loop": (_ONE_AXES, _ONE, "total == cu_seqlens[-1].item()",
                             "all(b - a <= 8 for a, b in zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:]))"),
    "equal_lengths": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS, "torch.equal(cu_seqlens[1:] - cu_seqlens[:-1], lens)"),
    "lengths_in_a_loop": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS,
                          "all(b - a == n for a, b, n in zip(cu_seqlens[:-1], cu_seqlens[1:], lens))"),
    "the_first_ones": (_PACKED_AXES, _PACKED, "total == seq_lens.sum().item()", "(prefix_lens >= 0).all()",
                       "all(prefix_lens[i] < 3 for i in range(2))"),
    "said_twice": (_BESIDE_AXES, _BESIDE, *_BESIDE_ENDS, "total == lens.sum().item()"),
    "windows": (axes(n=None, m=None, d=4),
                {"x": tensor("n d"), "starts": tensor("m", INTS), "lengths": tensor("m", INTS)},
                "(starts >= 0).all()", "(lengths >= 0).all()", "(starts + lengths <= n).all()"),
    "offsets_and_segments": (axes(n=None, n1=None, batch=None, rows=None, d=4),
                             {"x": tensor("n d"), "cos_sin": tensor("rows d"), "indptr": tensor("n1", INTS),
                              "offsets": tensor("batch", INTS)},
                             "n1 == batch + 1", "n == indptr[-1].item()", "(offsets >= 0).all()",
                             "(offsets + indptr[1:] - indptr[:-1] <= rows).all()"),
    "extremes_added": (axes(n=None, m=None, rows=None, d=4),
                       {"x": tensor("n d"), "table": tensor("rows d"), "pos": tensor("n", INTS),
                        "shift": tensor("m", INTS)},
                       "n > 0", "m > 0", "rows > 0", "(pos >= 0).all()", "(shift >= 0).all()",
                       "int(pos.max()) + int(shift.max()) < rows"),
    "extremes_added_unless_empty": (axes(n=None, m=None, rows=None, d=4),
                                    {"x": tensor("n d"), "table": tensor("rows d"), "pos": tensor("n", INTS),
                                     "shift": tensor("m", INTS)},
                                    "m > 0", "rows > 0", "bool((pos >= 0).all()) and bool((shift >= 0).all())",
                                    "n == 0 or max(pos) + max(shift) <= rows - 1"),
}  # fmt: skip


def definition_of(name):
    sizes, inputs, *constraints = CONTRACTS[name]
    first = next(iter(inputs.values()))
    return define(name, sizes, inputs, {"y": tensor(" ".join(first.shape))}, "", *constraints)


def check(definition, sizes, recipe):
    inputs = make_inputs(definition, sizes, recipe)  # raises where a constraint does not hold
    assert all(parse(text).tree is not None for text in definition.constraints)
    return inputs


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_edge_is_valid(name):
    definition = definition_of(name)
    cases = edge_cases(definition, max_elements=1 << 12, limit=40)
    assert len(cases) > 10
    for sizes, recipe in cases:
        check(definition, sizes, recipe)


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_draws_are_valid(data):
    definition = definition_of(data.draw(st.sampled_from(sorted(CONTRACTS))))
    check(definition, *data.draw(case_strategy(definition, max_elements=1 << 12)))


def drawn(name, sizes, count=40):
    definition = definition_of(name)
    return [make_inputs(definition, sizes, Recipe(seed=seed)) for seed in range(count)]


def test_lengths_below_others_are_all_that_they_may_be():
    cases = drawn("one_below_the_other", {"batch": 6, "max_q": 8, "max_kv": 12})
    pairs = {(int(q), int(kv)) for case in cases for q, kv in zip(case["q_lens"], case["kv_lens"], strict=True)}
    assert any(q == kv for q, kv in pairs)
    assert any(q + 1 == kv for q, kv in pairs)
    assert any(q == 1 and kv > 8 for q, kv in pairs)
    assert {1, 8} <= {q for q, _ in pairs}


def test_what_is_added_up_to_a_row_reaches_far_into_the_table():
    cases = drawn("extremes_added", {"n": 12, "m": 5, "rows": 40})
    assert max(int(case["pos"].max()) for case in cases) == 19
    assert max(int(case["shift"].max()) for case in cases) == 19
    assert max(int(case["pos"].max() + case["shift"].max()) for case in cases) > 35


def test_prefixes_are_none_some_and_all_of_a_sequence():
    cases = drawn("sum", {"total": 40, "batch": 5})
    pairs = [(int(p), int(n)) for case in cases for p, n in zip(case["prefix_lens"], case["seq_lens"], strict=True)]
    assert any(p == 0 < n for p, n in pairs)
    assert any(0 < p < n for p, n in pairs)
    assert any(0 < p == n for p, n in pairs)


def test_parts_of_a_sum_are_as_uneven_as_segments():
    cases = drawn("sum_of_no_empty_ones", {"total": 40, "batch": 5})
    lengths = [sorted(case["seq_lens"].tolist()) for case in cases]
    assert {sum(each) for each in lengths} == {40}
    assert min(map(min, lengths)) == 1
    assert max(map(max, lengths)) > 20
    assert len({tuple(each) for each in lengths}) > 20


def test_counts_that_sum_to_a_total_are_counts_and_no_ids():
    plan = plan_of(contract_of(definition_of("counts")))
    assert plan.roles["tokens_per_expert"].kind == "counts"
    assert plan.pointers[0].counted
    assert any(0 in case["tokens_per_expert"].tolist() for case in drawn("counts", {"total": 40, "experts": 8}))


def tree(text):
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(("text", "expected"), [
    ("p[1:] - p[:-1] <= n", "'steps of p' <= n"),
    ("x + p[1:] - p[:-1] <= n", "x + 'steps of p' <= n"),
    ("p[1:] == p[:-1] + x", "'steps of p' - x == 0"),
    ("p[1:] == torch.cumsum(x, dim=0)", "'steps of p' == x"),
    ("torch.diff(p) >= p.diff()", "'steps of p' >= 'steps of p'"),
    ("p[1:] >= p[:-1]", "'steps of p' >= 0"),
    ("p[2:] - p[:-2] <= n", "p[2:] - p[:-2] <= n"),
    ("q[1:] - p[:-1] <= n", "q[1:] - p[:-1] <= n"),
])  # fmt: skip
def test_differences_of_neighbouring_pointers_get_a_name(text, expected):
    found = with_steps(tree(text), ["p", "q"])
    assert ast.unparse(found).replace("steps of p", "'steps of p'") == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("all(a <= b for a, b in zip(x.tolist(), y))", [("x", "LtE", "y"), ("y", "GtE", "x")]),
    ("all(v >= 1 for v in x)", [("x", "GtE", "1"), ("1", "LtE", "x")]),
    ("all(x[i] <= x[i + 1] for i in range(n))", [("x[:-1]", "LtE", "x[1:]"), ("x[1:]", "GtE", "x[:-1]")]),
    ("all(x[i - 1] < x[i] for i in range(1, n))", [("x[:-1]", "Lt", "x[1:]"), ("x[1:]", "Gt", "x[:-1]")]),
    ("all(v > i for i, v in enumerate(x))", [("x", "Gt", "i"), ("i", "Lt", "x")]),
    ("all(x[i] <= i for i in range(n))", []),
    ("all(a <= b for a, b in zip(x, x[1:]))", [("x[:-1]", "LtE", "x[1:]"), ("x[1:]", "GtE", "x[:-1]")]),
    ("all(x[i] < 3 for i in range(2))", [("x[:2]", "Lt", "3"), ("3", "Gt", "x[:2]")]),
    ("all(x[i] <= x[i + 1] for i in range(min(4, n)))", []),
    ("all(a <= b for a in x for b in y)", []),
    ("all(a <= 3 for a in x if a > 1)", []),
])  # fmt: skip
def test_conditions_in_loops_are_read_as_conditions_on_whole_tensors(text, expected):
    found = [(ast.unparse(left), op.__name__, ast.unparse(right)) for left, op, right in demanded(tree(text))]
    assert found == expected


FORMS = (
    "x + y", "x - y", "y - x", "3 * x", "x * 2 + y", "x // 4", "-(-x // 4)", "cdiv(x, 4)", "(x + 3) // 4 - y", "-x",
    "2 - x", "x - (y + 1)", "x // 2 // 2",
)  # fmt: skip


@given(st.sampled_from(FORMS), st.sampled_from(["<", "<=", ">", ">=", "=="]), st.data())
def test_what_is_solved_for_a_tensor_says_the_same(form, op, data):
    x, y, n = (data.draw(st.integers(-20, 20)) for _ in range(3))
    env = {"x": x, "y": y, "n": n, "cdiv": lambda a, b: -(-a // b)}
    condition = tree(f"{form} {op} n")
    holds = eval(compile(ast.Expression(ast.fix_missing_locations(condition)), "", "eval"), env)  # our own text
    found = []
    for part, kind, value in solved(condition.left, type(condition.ops[0]), condition.comparators[0], {"x", "y"}):
        assert isinstance(part, ast.Name)
        said = ast.fix_missing_locations(ast.Expression(ast.Compare(part, [kind()], [value])))
        found.append(eval(compile(said, "", "eval"), env))
    assert all(found) is holds  # an equation with a rounding has two halves
    assert found


def test_a_tensor_of_lengths_that_a_workload_states_stays():
    definition = definition_of("sum")
    stated = torch.tensor([3, 0, 37], dtype=torch.int32)
    inputs = make_inputs(definition, {"total": 40, "batch": 3}, Recipe(0), given={"seq_lens": stated})
    assert inputs["seq_lens"].tolist() == [3, 0, 37]
    assert bool((inputs["prefix_lens"] <= stated).all())


def test_one_of_several_alternatives_says_nothing_of_all_segments():
    inputs = {**_ONE, "last": tensor("batch", INTS)}
    definition = define(
        "alternatives", _BESIDE_AXES, inputs, {"y": tensor("total d")}, "", *_BESIDE_ENDS,
        "((last > 0) & (cu_seqlens[1:] > cu_seqlens[:-1]) | (last == 0) & (cu_seqlens[1:] == cu_seqlens[:-1])).all()",
    )  # fmt: skip
    assert contract_of(definition).reading.facts.shortest == {}


def test_pointers_and_lengths_of_one_total_say_the_same():
    for case in drawn("said_twice", {"total": 40, "batch": 5, "n1": 6}):
        assert case["cu_seqlens"].diff().tolist() == case["lens"].tolist()


def test_what_sizes_an_output_is_no_length():
    inputs = {"x": tensor("n d"), "mask": tensor("n", "uint8")}
    constraints = ("nnz == mask.sum().item()", "mask.max() <= 1")
    compact = define("compact", axes(n=None, nnz=None, d=4), inputs, {"y": tensor("nnz d")}, "", *constraints)
    cases = [make_inputs(compact, {"n": 20}, Recipe(seed))["mask"] for seed in range(20)]
    assert sum(bool(mask.any()) and not bool(mask.all()) for mask in cases) > 15


def test_pointers_below_a_plain_number_are_pointers():
    offsets = {"x": tensor("total d"), "offsets": tensor("n", INTS)}
    guarded = define(
        "guarded", axes(total=None, n=None, d=4), offsets, {"y": tensor("n d")}, "", "offsets[0] == 0",
        "(offsets[1:] >= offsets[:-1]).all()", "(offsets < 2**31 - 1).all()", "n >= 1",
    )  # fmt: skip
    assert plan_of(contract_of(guarded)).roles["offsets"].kind == "indptr"


@pytest.mark.parametrize("structure", ["mixed", "one_long", "empty"])
def test_a_batch_of_many_sequences_takes_no_time(structure):
    start = time.perf_counter()
    sizes = {"total": 1 << 18, "batch": 1 << 16}
    make_inputs(definition_of("sum_of_no_empty_ones"), sizes, Recipe(0, structure=structure))
    assert time.perf_counter() - start < 10  # a minute, where each sequence looked at all others


_APPENDED = {
    "new_k": tensor("total d"), "cache": tensor("pages page_size d"), "n_indptr": tensor("n1", INTS),
    "context_lens": tensor("batch", INTS), "block_table": tensor("batch max_pages", INTS),
}  # fmt: skip
_APPENDED_AXES = axes(total=None, n1=None, batch=None, pages=None, max_pages=None, page_size=4, d=4)


@pytest.mark.parametrize(
    "room",
    [
        "bool((context_lens + n_indptr[1:] - n_indptr[:-1] <= max_pages * page_size).all())",
        "bool((n_indptr.diff() + context_lens <= max_pages * page_size).all())",
        "all(c + n <= max_pages * page_size for c, n in zip(context_lens.tolist(), n_indptr.diff().tolist()))",
    ],
)
def test_what_joins_a_sequence_is_drawn_apart_from_what_it_has_and_pages_hold_both(room):
    ends = ("n1 == batch + 1", "total == n_indptr[-1].item()")
    rules = (*ends, "(context_lens >= 0).all()", "(block_table >= -1).all()", room)
    definition = define("append", _APPENDED_AXES, _APPENDED, {"out": tensor("total d")}, "", *rules)
    pairs, sizes = set(), {"total": 21, "n1": 5, "batch": 4, "pages": 24, "max_pages": 6, "page_size": 4, "d": 4}
    for seed in range(12):
        drawn = make_inputs(definition, sizes, Recipe(seed))
        before, added = drawn["context_lens"], drawn["n_indptr"].diff()
        assert bool((before + added <= 24).all())
        assert torch.equal((drawn["block_table"] >= 0).sum(1), (before + added + 3) // 4)
        pairs |= {*zip(before.tolist(), added.tolist(), strict=True)}
    assert any(have > 4 and not new for have, new in pairs)
    assert any(not have and new > 4 for have, new in pairs)
    assert any(have > 4 and new > 4 for have, new in pairs)


def test_no_more_queries_than_keys_unless_they_join_them():
    """Where queries' own keys are appended, a first one has no keys before it."""
    rule = "all(s + q <= max_pages * page_size for s, q in zip(seq_lens.tolist(), cu_seqlens_q.diff().tolist()))"
    ends = ("n1 == batch + 1", "total_q == cu_seqlens_q[-1].item()")
    definition = define("extend", _PAGED_AXES, _PAGED, {"out": tensor("total_q d")}, "", *ends, rule)
    sizes = {"total_q": 13, "n1": 4, "batch": 3, "pages": 24, "max_pages": 6, "page_size": 4, "d": 4}
    drawn = [make_inputs(definition, sizes, Recipe(seed)) for seed in range(12)]
    assert any(bool((x["seq_lens"] < x["cu_seqlens_q"].diff()).any()) for x in drawn)


_OF_RESULT = {
    "packed_pages": (
        {"cache": tensor("pages page_size d"), "block_table": tensor("batch max_pages", INTS),
         "seq_lens": tensor("batch", INTS)},
        "total == seq_lens.sum()", "(block_table >= -1).all()",
    ),
    "packed_pages_bounded": (
        {"cache": tensor("pages page_size d"), "block_table": tensor("batch max_pages", INTS),
         "seq_lens": tensor("batch", INTS)},
        "total == seq_lens.sum()", "(seq_lens <= max_pages * page_size).all()", "(seq_lens >= 1).all()",
        "(block_table >= -1).all()",
    ),
    "pages_by_pointers": (
        {"cache": tensor("pages page_size d"), "block_table": tensor("batch max_pages", INTS),
         "cu_seqlens": tensor("n1", INTS)},
        "n1 == batch + 1", "cu_seqlens[0] == 0", "total == cu_seqlens[-1].item()", "(block_table >= -1).all()",
    ),
    "unpadded": (
        {"x": tensor("batch max_len d"), "lens": tensor("batch", INTS)}, "lens.sum() == total",
        "(lens <= max_len).all()",
    ),
    "repeated": (
        {"x": tensor("batch d"), "repeats": tensor("batch", INTS)}, "total == int(repeats.sum())",
        "(repeats >= 0).all()",
    ),
    "kept": ({"x": tensor("batch d"), "keep": tensor("batch", "bool")}, "total == keep.sum()"),
}  # fmt: skip


@pytest.mark.parametrize("name", _OF_RESULT)
@pytest.mark.parametrize("structure", ["mixed", "one_long", "uniform", "single", "empty"])
def test_a_stated_size_of_the_result_is_what_the_lengths_sum_to(name, structure):
    """A workload may state how many rows the result has, which no shape of an input shows."""
    inputs, *rules = _OF_RESULT[name]
    batch = 16 if name == "kept" else 4
    sizes = {"total": 11, "batch": batch, "n1": batch + 1, "pages": 9, "max_pages": 3, "page_size": 4, "max_len": 7}
    sizes["d"] = 2
    used = {"total", *(axis for spec in inputs.values() for axis in spec.shape)}
    definition = define(name, axes(**dict.fromkeys(used)), inputs, {"y": tensor("total d")}, "", *rules)
    given = {axis: size for axis, size in sizes.items() if axis in used}
    for seed in range(6):
        drawn = make_inputs(definition, given, Recipe(seed, structure=structure))
        told = next(value for key, value in drawn.items() if key not in {"x", "cache", "block_table"})
        lengths = told.diff() if name == "pages_by_pointers" else told
        assert int(lengths.sum()) == 11
        if "block_table" in drawn:
            assert torch.equal((drawn["block_table"] >= 0).sum(1), (lengths + 3) // 4)
