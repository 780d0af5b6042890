"""All contents that a kernel is ever given satisfy the constraints: the first ones, and those of every later call."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.floats.families import FAMILIES, SPECIAL
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.strategies import case_strategy
from pytest_flashinfer.inputs.variant import KINDS, ONE, breaks, variant
from tests.inputs.contracts import ALL, axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"
FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn")


def holds(definition, sizes, inputs):
    env = {**definition.const_axes, **sizes, **inputs}
    for text in definition.constraints:
        expression = parse(text)
        try:
            assert expression.tree is None or expression.holds(env), text
        except ConstraintError:
            assert 0 in sizes.values()  # the greatest of no elements


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@st.composite
def bounded(draw):
    """Draw a definition whose constraints state limits of a tensor, in one of several ways."""
    dtype = draw(st.sampled_from(["int8", "uint8", *FLOATS[:4]]))
    low = draw(st.integers(0 if dtype == "uint8" else -40, 30) if "int" in dtype else st.floats(-90, 90, width=16))
    high = low + draw(st.integers(2, 90))
    below, above = draw(st.sampled_from([("<", ">"), ("<=", ">=")]))
    ways = [
        (f"bool(((x {above} {low}) & (x {below} {high})).all())",), (f"(x {above} {low}).all()",),
        (f"bool(torch.all(x {below} {high}))",), (f"x.max().item() {below} {high}", f"x.min().item() {above} {low}"),
        (f"(x {below} m + {high - 9}).all()",), (f"x.min() {above} low", f"(x {below} high).all()"),
    ]  # fmt: skip
    inputs = {"x": tensor("n m", dtype), "y": tensor("n m"), "low": tensor(None), "high": tensor(None)}
    rules = draw(st.sampled_from(ways[: -1 if "int" in dtype else None]))  # scalars follow from integers
    spare = (f"low == {low}", f"high == {high}") if "low" in rules[0] else ()
    name = draw(st.sampled_from(["x", "weight", "x_scale", "zeros"]))
    inputs = {name if key == "x" else key: spec for key, spec in inputs.items()}
    rules = [rule.replace("x.m", f"{name}.m").replace("x ", f"{name} ") for rule in rules]
    return define("bounded", axes(n=None, m=9), inputs, {"z": tensor("n m")}, NOTHING, *rules, *spare)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - SPECIAL))
def test_an_end_that_the_dtype_does_not_have_is_not_rounded_beyond(family):
    definition = define(
        "bounded", axes(n=None, m=9), {"x": tensor("n m", "bfloat16")}, {"z": tensor("n m")}, NOTHING,
        "x.max().item() <= 66.625", "x.min().item() >= 64.625",
    )  # fmt: skip
    for seed in range(5):
        holds(definition, {"n": 5}, make_inputs(definition, {"n": 5}, Recipe(seed, family)))


@settings(max_examples=150, deadline=None)
@given(bounded(), st.integers(1, 40), st.integers(0, 1 << 30), st.sampled_from(sorted(set(FAMILIES) - SPECIAL)),
       st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))  # fmt: skip
def test_contents_of_every_call_obey_the_limits(definition, rows, seed, family, kinds):
    inputs = make_inputs(definition, {"n": rows}, Recipe(seed, family))
    holds(definition, {"n": rows}, inputs)
    for number, kind in enumerate(kinds):
        inputs = variant(inputs, definition, {"n": rows}, kind, seeded(seed + number))
        holds(definition, {"n": rows}, inputs)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_contents_of_every_call_satisfy_the_constraints(data):
    definition = data.draw(st.sampled_from(ALL))
    sizes, recipe = data.draw(case_strategy(definition, max_elements=1 << 11))
    inputs = make_inputs(definition, sizes, recipe)
    for kind in KINDS:
        inputs = variant(inputs, definition, sizes, kind, seeded(data.draw(st.integers(0, 99))))
        holds(definition, sizes, inputs)


TIED = define(
    "tied", axes(n=None, h=16),
    {"x": tensor("n h"), "low": tensor("n h"), "high": tensor("n h"), "codes": tensor("n h", "uint8")},
    {"y": tensor("n h")}, NOTHING, "(low <= high).all()", "(codes[:, 1:] > codes[:, :-1]).all()", "(x > -9).all()",
)  # fmt: skip


@given(st.integers(0, 1 << 30), st.sampled_from(KINDS))
def test_what_cannot_change_within_the_constraints_stays(seed, kind):
    first = {
        "x": torch.rand(3, 16, generator=seeded(seed)), "low": torch.full((3, 16), -1.0),
        "high": torch.full((3, 16), 1.0), "codes": torch.arange(48, dtype=torch.uint8).view(3, 16) % 16,
    }  # fmt: skip
    later = variant(first, TIED, {"n": 3}, kind, seeded(seed))
    holds(TIED, {"n": 3}, later)
    assert kind == ONE or not torch.equal(later["x"], first["x"])
    if kind == "fresh":
        assert torch.equal(later["codes"], first["codes"])


def test_a_constraint_that_the_first_contents_break_holds_nothing_back():
    first = {name: torch.full((3, 16), float(name == "low")) for name in ("x", "low", "high")}
    first["codes"] = torch.zeros(3, 16, dtype=torch.uint8)
    later = variant(first, TIED, {"n": 3}, "fresh", seeded(0))
    assert not torch.equal(later["low"], first["low"])
    assert breaks(first, {**first, "x": torch.full((3, 16), -10.0)}, TIED, {"n": 3})
    assert not breaks(first, {**first, "x": torch.full((3, 16), -8.0)}, TIED, {"n": 3})


def only(name, dtype, *constraints):
    inputs = {name: tensor("n m", dtype)}
    return define("only", axes(n=None, m=9), inputs, {"z": tensor("n m")}, NOTHING, *constraints)


def drawn(name, dtype, *constraints, **recipe):
    definition = only(name, dtype, *constraints)
    return torch.cat([make_inputs(definition, {"n": 40}, Recipe(seed, **recipe))[name].flatten() for seed in range(4)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_come_up_to_their_bounds_and_keep_what_a_family_is_for(dtype):
    positive = drawn("slopes", dtype, "(slopes > 0).all()" if "8" not in dtype else "(slopes.float() > 0).all()")
    assert "8" in dtype or float(positive.double().min()) > 0
    assert float(positive.double().max()) > 2
    ties = drawn("slopes", "float32", "(slopes >= 0.25).all()", family="ties")
    assert len(ties.unique()) < 60
    share = drawn("share", "bfloat16", "((share > 0) & (share < 1)).all()", family="normal").float()
    assert float(share.min()) < 0.05
    assert float(share.max()) > 0.95


def test_a_zero_that_is_not_allowed_is_just_inside():
    assert 0 < drawn("slopes", "float32", "(slopes > 0).all()", family="zero_rows").min() < 2.0**-10


def test_integers_that_are_all_of_a_dtype_stay_that_where_nothing_bounds_them():
    codes = drawn("codes", "int8")
    assert (int(codes.min()), int(codes.max())) == (-128, 127)


def test_exponents_stay_within_their_limits():
    scales = drawn("x_scale", "uint8", "(x_scale <= 125).all()")
    assert plan_of(contract_of(only("x_scale", "uint8"))).roles["x_scale"].kind == "e8m0"
    assert int(scales.min()) == 122
    assert int(scales.max()) == 125


@pytest.mark.parametrize(
    "rule", ["bool((v.abs() <= 900).all())", "int(v.abs().max()) <= 900", "torch.abs(v).max() < 901"]
)
def test_a_bound_on_magnitudes_is_one_on_both_sides(rule):
    inputs = {"v": tensor("n", "int32"), "x": tensor("n")}
    code = "def run(v, x):\n    return x + v // 7\n"
    definition = define("signed", axes(n=None), inputs, {"y": tensor("n")}, code, rule)
    drawn = [make_inputs(definition, {"n": 30}, Recipe(seed))["v"] for seed in range(6)]
    assert all(-900 <= int(each.min()) < 0 < int(each.max()) <= 900 for each in drawn)
    assert min(int(each.min()) for each in drawn) < -700


@pytest.mark.parametrize(
    ("rule", "values"),
    [("(m * (1 - m) == 0).all()", {0, 1}), ("((m == 0) | (m.abs() == 1)).all()", {-1, 0, 1}),
     ("torch.isin(m, torch.tensor([0, 2, 5])).all()", {0, 2, 5}), ("torch.all(m * m == m)", {0, 1}),
     ("not ((m - 3) * (m - 4) != 0).any()", {3, 4})],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_what_a_condition_on_each_element_allows_is_found_by_trying(dtype, rule, values):
    found = set(drawn("m", dtype, rule).tolist())
    assert found == values or (dtype == "int32" and found < values)


def test_a_number_may_be_left_out_beside_a_range():
    found = drawn("m", "float32", "((m == 0) | ((m >= 1) & (m <= 2))).all()")
    assert found.unique().numel() > 4
    assert bool(((found == 0) | ((found >= 1) & (found <= 2))).all())
