"""Constraints that no rule knows: one side of what does not hold is made what the other asks for."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import Unsatisfiable
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.repair import search
from tests.inputs.contracts import axes, define, tensor

LOOK_UP = """def run(x, a, b, c, t, u, w):
    return x[a.long()] + x[b.long()] + x[c.long()].sum() + x[t.long()].sum()
"""
SIZES = {"n": 12, "g": 4, "m": 5, "rows": 64}
IDS = {name: tensor(shape, "int32") for name, shape in (("a", "n"), ("b", "n"), ("c", "g"), ("t", "g m"))}
IDS |= {"u": tensor("n", "bool"), "w": tensor("g m", "bool")}
FORMS = {
    "an element-wise equation": ["bool((a == torch.cumsum(b, 0) - b).all())", "bool((b >= 0).all())"],
    "an inverse": ["bool((b[a.long()] == torch.arange(n)).all())", "torch.bincount(a, minlength=n).eq(1).all()"],
    "counts": ["torch.equal(torch.bincount(a, minlength=g), c.long())", "int(c.sum()) == n", "bool((c >= 0).all())",
               "bool((a < g).all())"],
    "counts of sorted ids": ["torch.equal(torch.bincount(a, minlength=g), c.long())", "bool((a[1:] >= a[:-1]).all())",
                             "int(c.sum()) == n"],
    "each as often": ["torch.bincount(a, minlength=g).eq(3).all()"],
    "sums of rows": ["bool((t.sum(dim=1) == c).all())", "bool((t >= 0).all())", "bool((c > 2).all())"],
    "a sum at most": ["int(c.sum()) <= n", "bool((c % 3 == 0).all())", "bool((c >= 0).all())"],
    "a mask by lengths": ["((t >= 0) == (torch.arange(m) < c.unsqueeze(1))).all()", "bool((c <= m).all())",
                          "bool((t < 9).all())"],
    "marks by counts": ["bool(((t >= 0).sum(-1) == c).all())", "bool((t >= -1).all())"],
    "one of two": ["bool(((a < 0) | (a == b)).all())", "bool((b < 7).all())"],
    "sizes or both ends": ["n == 0 or (a[0] >= 0 and a[-1] < g)", "bool((a[1:] >= a[:-1]).all())"],
    "neighbours differ": ["bool((a[1:] != a[:-1]).all())", "bool((a < 3).all())", "bool((a >= 0).all())"],
    "every turn of a loop": ["all(bool((row.diff() > 0).all()) for row in t)", "bool((t < 9).all())"],
    "segments of a loop": ["c[0].item() == 0", "bool((c.diff() >= 1).all())", "int(c[-1]) <= n",
                           "all(bool((a[x:y].diff() > 0).all()) for x, y in zip(c.tolist(), c.tolist()[1:] + [n]))"],
    "the largest": ["bool((t.max(dim=1).values == c).all())", "int(a.max()) == n - 1"],
    "a mask where another is false": ["not (u & (a == -1)).any().item()", "bool((a >= -1).all())"],
    "marks where a mask is": ["torch.equal(u, a >= 0)", "bool((a[a >= 0] < 9).all())", "u.sum() == 7"],
    "as many set": ["w.sum().item() == n", "not (w & (t > 40)).any()"],
    "as many set in each row": ["torch.equal(torch.count_nonzero(w, dim=1), c.long())", "bool((c <= m).all())"],
    "as many of two kinds": ["torch.count_nonzero(a >= 20) == n // 2", "bool((a < 40).all())"],
    "in use in any order": ["a[a >= 0].sort().values.tolist() == list(range(int((b >= 0).sum())))",
                            "torch.equal(a >= 0, b >= 0)", "bool((b >= -1).all())"],
    "sorted lists": ["sorted(a.tolist()) == list(range(n))", "sorted(b.tolist()) == sorted(a.tolist())"],
    "all of a set": ["set(a.tolist()) == set(range(5))"],
    "distinct in a set": ["len(set(t[t >= 0].tolist())) == (t >= 0).sum().item()", "bool((t >= -1).all())"],
    "marks in both": ["torch.equal(a == -1, b == -1)", "bool((a >= -1).all()) and bool((b >= -1).all())"],
    "blocks": ["bool(((a.view(-1, 4) == -1) | (a.view(-1, 4) == a.view(-1, 4)[:, :1])).all())",
               "bool((torch.diff((a.view(-1, 4) >= 0).int(), dim=1) <= 0).all())", "bool((a < 9).all())",
               "torch.equal(a[a >= 0], a[a >= 0].sort().values)"],
    "later ones or none": ["((t == -1) | (t > torch.arange(m))).all()", "int(t.max()) < m", "(t[:, 0] > 1).all()"],
    "one of two ranges": ["(((a >= 3) & (a < 5)) | ((a > 20) & (a <= 24))).all()"],
    "falls": ["bool((a.diff() <= 0).all())", "bool((b[1:] < b[:-1]).all())"],
    "how many differ": ["a.unique().numel() == g", "bool((a < g).all())"],
}  # fmt: skip


def with_constraints(constraints):
    inputs = {"x": tensor("rows"), **IDS}
    return define("ids", axes(n=None, g=None, m=None, rows=None), inputs, {"y": tensor("n")}, LOOK_UP, *constraints)


@pytest.mark.parametrize("name", FORMS)
def test_most_draws_are_made_valid_and_differ(name):
    definition, made = with_constraints(FORMS[name]), []
    for seed in range(12):
        with contextlib.suppress(Unsatisfiable):
            made.append(make_inputs(definition, SIZES, Recipe(seed)))
    assert len(made) >= 8
    assert len({str([each[name].tolist() for name in IDS]) for each in made}) == len(made)


def test_what_cannot_be_met_leaves_everything_as_it_is():
    definition = with_constraints(["int(a.sum()) == 3", "int(a.sum()) == 4"])
    made = {name: torch.arange(12, dtype=torch.int32) for name in ("a", "b")}
    env = {**SIZES, **made, "c": torch.zeros(4, dtype=torch.int32), "t": torch.zeros(4, 5, dtype=torch.int32)}
    known = {name: value.clone() for name, value in made.items()}
    contract = contract_of(definition)
    assert search.mend(contract, plan_of(contract), env, set(IDS), 0) == set()
    assert all(torch.equal(env[name], known[name]) for name in known)


def test_what_was_given_stays():
    definition = with_constraints(["bool((a == b).all())"])
    given = torch.arange(12, dtype=torch.int32) * 5
    for name, other in (("a", "b"), ("b", "a")):
        made = make_inputs(definition, SIZES, Recipe(1), given={name: given})
        assert made[name] is given
        assert torch.equal(made[other], given)


def test_the_same_recipe_gives_the_same_inputs():
    definition = with_constraints(FORMS["counts"])
    one, other = (make_inputs(definition, SIZES, Recipe(7)) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in IDS)


def test_ids_stay_within_what_they_point_at():
    """No constraint says so, and a reference would read past the end."""
    contract = contract_of(with_constraints(["bool((a == b * 20).all())"]))
    env = {**SIZES, "a": torch.zeros(12, dtype=torch.int32), "b": torch.arange(12, dtype=torch.int32)}
    env |= {"c": torch.zeros(4, dtype=torch.int32), "t": torch.zeros(4, 5, dtype=torch.int32)}
    changed = search.mend(contract, plan_of(contract), env, set(IDS), 0)
    assert changed
    assert int(env["a"].max()) < SIZES["rows"]
    assert torch.equal(env["a"], env["b"] * 20)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1"])
def test_floats_beside_integers_that_were_mended_are_finite(dtype):
    definition = with_constraints(FORMS["counts"])
    inputs = {**definition.inputs, "pool": tensor("rows m", dtype), "last": tensor("rows", dtype)}
    for seed in range(4):
        made = make_inputs(replace(definition, inputs=inputs), {**SIZES, "m": 6}, Recipe(seed, structure="stale_nan"))
        for name in ("pool", "last"):
            assert dtype == "float4_e2m1" or bool(made[name].float().isfinite().all())


ROWS = "def run(x, ids):\n    return x[ids.long()]\n"
PROMISED = {  # what words promise of ids, with a constraint that a draw seldom meets, and how far they may be repaired
    "a permutation of 0..n-1": "(ids != torch.arange(n)).all()",
    "distinct slots of x": "(ids != 0).all()",
    "row of x, no two alike": "(ids != 2).all()",
}


@pytest.mark.parametrize("words", PROMISED)
def test_what_words_promise_of_ids_still_holds(words):
    inputs = {"x": tensor("rows"), "ids": tensor("n", "int32", description=words)}
    definition = define("picked", axes(n=None, rows=None), inputs, {"y": tensor("n")}, ROWS, PROMISED[words])
    made = []
    for seed in range(12):
        with contextlib.suppress(Unsatisfiable):
            made.append(make_inputs(definition, {"n": 5, "rows": 9}, Recipe(seed))["ids"].tolist())
    assert made
    assert all(len(set(ids)) == 5 and min(ids) >= 0 and max(ids) < 9 for ids in made)
    assert "permutation" not in words or all(sorted(ids) == list(range(5)) for ids in made)


@pytest.mark.parametrize(
    "constraint",
    ["(t[:, 1:] != t[:, :-1]).all()", "(t[:, -1] != c).all()", "bool(a[-1] != a[0])", "(a.diff() != -1).all()"],
)
def test_ids_stay_positive_where_no_constraint_speaks_of_negative_ones(constraint):
    for seed in range(8):
        with contextlib.suppress(Unsatisfiable):
            made = make_inputs(with_constraints([constraint]), {**SIZES, "rows": 2}, Recipe(seed))
            assert all(int(made[name].min()) >= 0 for name in IDS)


@pytest.mark.parametrize(
    "constraint",
    ["(t.sum(0) >= 50).all()", "(torch.sum(t, dim=0) == 7).all()", "a.max() == float('inf')",
     "(t.sum(dim=1, keepdim=True) == c[:, None]).all()", "bool((a == 'x').all())", "(a[c.long()] > 2).all()",
     "all(bool(a[i] != b[j]) for i in range(n) for j in range(n))", "(a % (c[0] - c[0]) == 0).all()",
     "(a % c.long() == 0).all()", "(t % c[:, None] == 0).all()", "(t.max(dim=0).values == 9).all()",
     "torch.bincount(a).max() <= c", "(a.unique().numel() == c).all()", "a.diff().diff().min() >= 3",
     "((a < 0) == (b < 0)).all()", "(t.diff(dim=0) == c.view(1, -1)).all()", "(a[1:] == b[:-1] + 2).all()"],
)  # fmt: skip
def test_whatever_a_constraint_asks_for_is_met_or_refused(constraint):
    for seed in range(3):
        with contextlib.suppress(Unsatisfiable):
            make_inputs(with_constraints([constraint, "(c >= 1).all()"]), SIZES, Recipe(seed))


def test_ids_of_a_large_range_are_made_different_in_no_time():
    wide = ["(a >= 0).all()", "(a < 2 ** 31 - 1).all()", "a.unique().numel() == n - 1", "(t.diff(dim=1) > 0).all()"]
    start = time.perf_counter()
    for seed in range(3):
        with contextlib.suppress(Unsatisfiable):
            make_inputs(with_constraints(wide), {**SIZES, "rows": 1 << 20}, Recipe(seed))
    assert time.perf_counter() - start < 5


def test_a_constraint_without_a_truth_value_says_so():
    told = r"a.max\(\) <= c.*has no truth value, ask for `\.all\(\)` of it.*; correct the constraint$"
    with pytest.raises(Unsatisfiable, match=told):
        make_inputs(with_constraints(["a.max() <= c"]), SIZES, Recipe(1))
