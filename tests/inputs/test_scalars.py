"""Scalars keep to the constraints that name them, at their bounds as well; what workloads list is tried."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.constraints import parse
from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import AxisConflict, InputsError, Unsatisfiable
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.strategies import case_strategy, edge_cases
from tests.inputs.contracts import axes, define, tensor


def scaled(*constraints: str, **scalars: str):
    """Rows and scalars of these dtypes."""
    specs = {name: tensor(None, dtype) for name, dtype in scalars.items()}
    return define("scaled", axes(n=None, m=None, h=8), {"x": tensor("n h"), "z": tensor("m h"), **specs},
                  {"y": tensor("n h")}, "", *constraints)  # fmt: skip


SMOOTHED = scaled("smoothing >= 0", "smoothing < 1", "n <= 4096", smoothing="float32")
BOUNDED = (
    SMOOTHED,
    scaled("limit > 0", limit="float32"),
    scaled("0 < p < 1e-3", p="float32"),
    scaled("-1 <= slope and slope <= -0.5", slope="float32"),
    scaled("low < high", "low >= 2", low="float32", high="float32"),
    scaled("ratio in (0.25, 0.75)", ratio="float32"),
    scaled("ratio * n <= 3", ratio="float32"),
    scaled("m == int(factor * n)", factor="float32"),
    scaled("temperature > 0 or top == 1", temperature="float32", top="int32"),
    scaled("scale == 1 / math.sqrt(n + 1)", scale="float32"),
    scaled("window_left >= 0", window_left="int32"),
    scaled("step % 4 == 0", "step > 0", step="int32"),
    scaled("causal == False or m >= n", causal="bool"),
    scaled("bool((x <= 2.0**100 * gain).all()) and gain != 1", gain="float32"),
)


def values(definition, name, listed=()):
    cases = edge_cases(definition, listed, max_elements=1 << 11)
    return {make_inputs(definition, *case)[name] for case in cases}


@pytest.mark.parametrize("definition", BOUNDED, ids=lambda definition: definition.constraints[0])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_drawn_scalar_satisfies_its_constraints(definition, data):
    sizes, recipe = data.draw(case_strategy(definition, max_elements=1 << 11))
    env = {**sizes, **make_inputs(definition, sizes, recipe)}
    assert [text for text in definition.constraints if not parse(text).holds(env)] == []


def test_float_scalars_are_no_sizes_and_integer_ones_are():
    mixed = contract_of(scaled("a >= 1", "b >= 1", a="float32", b="int32"))
    assert mixed.sizes == ("n", "m", "b")
    assert [rule.text for rule in mixed.reading.scalar] == ["a >= 1"]
    assert contract_of(SMOOTHED).free == ("n", "m")


def test_bounds_and_what_is_just_inside_are_tried():
    assert {0.0, 0.5, 1 - 2**-10} <= values(SMOOTHED, "smoothing")
    assert min(values(scaled("limit > 0", limit="float32"), "limit")) == 2**-10
    assert 1 - 2**-7 in values(scaled("0 <= p < 1", p="bfloat16"), "p")  # the dtype can tell it from 1
    assert values(scaled("ratio in (0.25, 0.75)", ratio="float32"), "ratio") == {0.25, 0.75}


def test_sizes_follow_from_a_float_at_its_usual_value():
    doubled = scaled("m == int(2 * factor * n)", factor="float32")
    assert {sizes["m"] - 2 * sizes["n"] for sizes, _ in edge_cases(doubled)} == {0}


def test_a_scalar_yields_to_the_sizes_it_is_compared_with():
    assert len({case[0]["n"] for case in edge_cases(scaled("ratio <= n", ratio="float32"))}) > 9


@pytest.mark.parametrize("wish", [-1.0, 1.0, 7.0])
def test_a_wish_that_a_constraint_forbids_is_not_granted(wish):
    assert make_inputs(SMOOTHED, {"n": 1, "m": 1}, Recipe(0, scalars={"smoothing": wish}))["smoothing"] == 0.5


def test_a_zero_dimensional_tensor_is_checked_as_it_is_stored():
    """0.1 is more than that in float32."""
    definition = define("d", axes(n=None), {"x": tensor("n"), "p": tensor("")}, {"y": tensor("n")}, "", "p <= 0.1")
    assert float(make_inputs(definition, {"n": 2}, Recipe(0))["p"]) <= 0.1


def test_what_nothing_satisfies_is_told():
    with pytest.raises(Unsatisfiable, match="a \\* a < 0"):
        make_inputs(scaled("a * a < 0", a="float32"), {"n": 1, "m": 1}, Recipe(0))
    line = Workload("w", {"n": 1, "m": 1}, {"x": InputSpec("random"), "z": InputSpec("random"),
                                            "low": InputSpec("scalar", 1.0), "high": InputSpec("random")})  # fmt: skip
    with pytest.raises(AxisConflict, match="low"):
        make_inputs(scaled("low * low > high * high + 1", low="float32", high="float32"), line.axes, Recipe(0),
                    workload=line)  # fmt: skip


def test_what_a_workload_lists_is_taken_as_it_is():
    line = Workload("w", {"n": 1, "m": 1}, {"x": InputSpec("random"), "z": InputSpec("random"),
                                            "smoothing": InputSpec("scalar", 0.875)})  # fmt: skip
    assert make_inputs(SMOOTHED, line.axes, Recipe(0), workload=line)["smoothing"] == 0.875


@pytest.mark.parametrize("value", [-1.0, 2.0])
def test_but_not_against_a_constraint(value):
    line = Workload("w", {"n": 1, "m": 1}, {"x": InputSpec("random"), "z": InputSpec("random"),
                                            "cap": InputSpec("scalar", value)})  # fmt: skip
    capped = scaled("cap >= 0", cap="float32")
    if value > 0:
        assert make_inputs(capped, line.axes, Recipe(0), workload=line)["cap"] == value
    else:
        with pytest.raises(AxisConflict, match=r"`cap >= 0` does not hold for cap = -1.0; correct the workload"):
            make_inputs(capped, line.axes, Recipe(0), workload=line)


@pytest.mark.parametrize(
    ("constraint", "dtype", "value"),
    [
        ("cap <= 0.1", "float32", 0.10000000149011612),
        ("cap == 1 / math.sqrt(128)", "float32", 128**-0.5),
        ("0 < cap <= 0.1", "bfloat16", 0.10009765625),
        ("cap in (torch.float16, torch.bfloat16)", "dtype", "torch.float16"),
    ],
)
def test_nor_is_it_refused_for_the_rounding_of_its_dtype(constraint, dtype, value):
    line = Workload("w", {"n": 1, "m": 1}, {"x": InputSpec("random"), "z": InputSpec("random"),
                                            "cap": InputSpec("scalar", value)})  # fmt: skip
    assert make_inputs(scaled(constraint, cap=dtype), line.axes, Recipe(0), workload=line)["cap"] == value


def test_listed_floats_are_tried():
    listed = [{"n": 2, "m": 1, "smoothing": 0.125}, {"n": 4, "m": 1, "smoothing": 0.0625}]
    assert {0.125, 0.0625} <= values(SMOOTHED, "smoothing", listed)
    assert {0.125, 0.0625} <= {recipe.scalars.get("smoothing") for _, recipe in edge_cases(SMOOTHED, listed)}
    plain = scaled(sm_scale="float32", causal="bool", layout="string")
    listed = [{"n": 2, "sm_scale": 2, "causal": False, "layout": "NHD"}]
    grid = grid_of(plain, listed)
    assert grid.usual == {"sm_scale": 2.0, "causal": False, "layout": "NHD"}
    assert isinstance(grid.usual["sm_scale"], float)
    assert grid.scalars["causal"] == (True,)


def test_what_most_workloads_list_is_usual():
    listed = [{"n": n, "m": 1, "smoothing": value} for n, value in ((2, 0.125), (3, 0.125), (4, 0.0625))]
    first = [recipe.scalars["smoothing"] for _, recipe in edge_cases(SMOOTHED, listed)[:4]]
    assert set(first) == {0.125}
    assert {0.0, 0.0625} <= values(SMOOTHED, "smoothing", listed)
    assert grid_of(SMOOTHED, listed[1:]).usual == {}


def lay_out(*rules, reference="def run(x, layout):\n    return x\n", **kwargs):
    inputs = {"x": tensor("n"), "layout": tensor(None, "string", **kwargs)}
    return define("lay_out", axes(n=None), inputs, {"y": tensor("n")}, reference, *rules)


def test_a_text_that_nothing_tells_is_asked_for():
    with pytest.raises(InputsError, match="`layout` is a string, and nothing says which: list workloads that state it"):
        make_inputs(lay_out(), {"n": 2}, Recipe(0))
    assert make_inputs(lay_out(optional=True), {"n": 2}, Recipe(0))["layout"] is None
    assert make_inputs(lay_out("layout in ('a', 'b')"), {"n": 2}, Recipe(0))["layout"] == "a"
    default = lay_out(reference="def run(x, layout='c'):\n    return x\n")
    assert make_inputs(default, {"n": 2}, Recipe(0))["layout"] == "c"
    listed = [{"n": 2, "layout": "d"}, {"n": 3, "layout": "e"}]
    cases = edge_cases(lay_out(), listed)
    assert {make_inputs(lay_out(), sizes, recipe)["layout"] for sizes, recipe in cases} == {"d", "e"}


def test_an_optional_scalar_that_a_workload_states_as_null_is_left_out():
    specs = {"x": tensor("n"), "a": tensor("", optional=True), "b": tensor(None, optional=True)}
    definition = define("left_out", axes(n=None), specs, {"y": tensor("n")}, "def run(x, a, b):\n    return x\n")
    null = {name: InputSpec("scalar", value=None) for name in "ab"}
    line = Workload("w", {"n": 1}, {"x": InputSpec("random"), **null})
    made = make_inputs(definition, line.axes, Recipe(0), workload=line)
    assert (made["a"], made["b"]) == (None, None)


@pytest.mark.parametrize("code", [None, "return x if cap <= 0 else cap * torch.tanh(x / cap)"])
def test_a_cap_is_off_where_it_can_be(code):
    """Else it would hide what large values do."""
    told = None if code else "0 means none"
    specs = {"x": tensor("n h"), "logits_soft_cap": tensor(None, description=told)}
    text = (code or "return x").replace("cap", "logits_soft_cap")
    capped = define("capped", axes(n=None, h=8), specs, {"y": tensor("n h")},
                    f"def run(x, logits_soft_cap):\n    {text}\n")  # fmt: skip
    drawn = [(recipe.family, make_inputs(capped, sizes, recipe)["logits_soft_cap"])
             for sizes, recipe in edge_cases(capped)]  # fmt: skip
    assert drawn[0][1] == 0.0
    assert {cap for family, cap in drawn if family in {"large", "negative"}} == {0.0}
    assert {30.0, 5.0} <= {cap for _, cap in drawn}


def test_listed_integers_are_tried_where_they_do_not_follow_from_sizes():
    plain = scaled(window_left="int32")
    same, other = [[{"n": n, "window_left": w} for n, w in ((2, 5), (4, last))] for last in (5, 7)]
    by_name = {"window_left": (1, 67, 5, 0)}
    assert grid_of(plain, same).usual == {"window_left": 5}
    assert grid_of(plain, same).scalars == {"window_left": (-1, 1, 67, 0)}
    assert grid_of(plain, other).scalars == grid_of(plain, same[:1]).scalars == by_name


@pytest.mark.parametrize(
    ("rules", "values"),
    [
        (("0 <= shift < 64",), {0, 1, 63}),
        (("shift >= -1",), {-1, 0}),
        (("shift >= 1", "shift <= n"), {1, 2}),
    ],
)
def test_integers_are_tried_at_the_bounds_that_constraints_set(rules, values):
    """All workloads may list the same one: a kernel that knows it would pass."""
    specs = {"x": tensor("n h"), "shift": tensor(None, "int32")}
    definition = define("rolled", axes(n=None, h=8), specs, {"y": tensor("n h")},
                        "def run(x, shift):\n    return torch.roll(x, shift, 0)\n", *rules)  # fmt: skip
    grid = grid_of(definition, [{"n": 4, "shift": 5}, {"n": 9, "shift": 5}])
    assert grid.usual == {"shift": 5}
    tried = set(grid.scalars.get("shift", ()))
    assert tried >= values
    assert all(eval(rule, {"shift": each, "n": 4}) for each in tried for rule in rules)  # ours


def branching(code, description=None, *constraints, dtype="float32"):
    specs = {"x": tensor("n h"), "z": tensor("n h"), "knob": tensor(None, dtype, description=description)}
    text = f"def run(x, z, knob):\n    {code}\n"
    return define("branching", axes(n=None, h=8), specs, {"y": tensor("n h")}, text, *constraints)


@pytest.mark.parametrize(("code", "told", "dtype", "value"), [
    ("return x if knob is None or knob == 0.0 else x * knob", None, "float32", 0.0),
    ("return x if not knob else x * knob", None, "float32", 0.0),
    ("return x * (knob or 2.0)", None, "float32", 0.0),
    ("return x if knob <= 0 else x.clamp(max=knob)", None, "float32", 0.0),
    ("return x.clamp(max=knob) if knob >= 0 else x", None, "float32", -1.0),
    ("return x[:knob] if knob > -1 else x", None, "int32", -1),
    ("return x[:knob] if knob > -1 else x", None, "int32", 0),
    ("return x[:knob] if knob >= 0 else x", "-1 means none.", "int32", 0),
    ("return x if knob < 0 else x[:knob]", None, "int32", 0),
    ("return x * float(knob) if int(knob) != 3 else x", None, "int32", 3),
    ("return x * knob", "Factor; 0 means none.", "float32", 0.0),
    ("return x * knob", "How many are kept, -1 disables it.", "int32", -1),
    ("return x * knob", "A bound; < 0: disabled.", "int32", -1),
])  # fmt: skip
def test_values_that_mean_something_of_their_own_are_drawn(code, told, dtype, value):
    assert value in values(branching(code, told, dtype=dtype), "knob")


@pytest.mark.parametrize(("code", "told", "rules"), [
    ("assert knob != 0.0\n    return x", None, ()),
    ("if knob == 0.0:\n        raise ValueError\n    return x", None, ()),
    ("return x if knob == 0.0 else x * knob", None, ("knob > 0",)),
    ("return x * knob", "Factor, 1.0 by default; in [0, 1].", ()),
    ("return x if z.sum() == 0 else x * knob", None, ()),
])  # fmt: skip
def test_but_not_where_they_are_refused_or_mean_nothing(code, told, rules):
    assert 0.0 not in values(branching(code, told, *rules), "knob")


def test_nor_of_integers_that_shapes_have_to_fit():
    definition = define(
        "sized", axes(n=None, h=8), {"x": tensor("n h"), "group_size": tensor(None, "int32")}, {"y": tensor("n h")},
        "def run(x, group_size):\n    return x if group_size == 0 else x * 2\n",
    )  # fmt: skip
    assert 0 not in values(definition, "group_size")


def test_a_window_of_no_keys_is_drawn_whatever_its_name():
    for name in ("win", "window_left", "window_size", "left"):
        code = f"def run(x, {name}):\n    return x[:{name}] if {name} >= 0 else x\n"
        specs = {"x": tensor("n h"), name: tensor(None, "int32", description="-1 means no window")}
        definition = define("windowed", axes(n=None, h=8), specs, {"y": tensor("n h")}, code)
        assert {-1, 0} <= values(definition, name)


def test_where_few_cases_are_tried_a_value_of_its_own_is_among_them():
    definition = branching("return x if knob == 0.0 else x * knob")
    assert 0.0 in [recipe.scalars.get("knob") for _, recipe in edge_cases(definition)[:10]]


def test_terms_are_left_out_and_negated_and_scales_are_not():
    drawn = grid_of(scaled(alpha="float32", scale_factor="float32", eps="float32")).scalars
    assert {0.0, -1.0} <= set(drawn["alpha"])
    assert min(*drawn["scale_factor"], *drawn["eps"]) > 0
    assert -1.0 not in grid_of(scaled("beta >= 0", beta="float32")).scalars["beta"]


@pytest.mark.parametrize("name", [
    "eps", "temperature", "top_p", "min_p", "rope_theta", "high_freq_factor", "low_freq_factor", "old_context_len",
    "soft_cap", "limit", "threshold", "p", "routed_scaling", "alpha", "out_scale", "sm_scale", "slope", "cutoff",
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_some_floats_are_none_that_16_bits_hold(name, dtype):
    drawn = torch.tensor(sorted(values(scaled(**{name: "float32"}), name)))
    assert (drawn.to(dtype).float() != drawn).any()


def test_the_scale_of_a_softmax_is_any_around_its_usual_one():
    drawn = sorted(value * 64**0.5 for value in grid_of(scaled(sm_scale="float32")).scalars["sm_scale"])
    assert drawn[0] <= 0.1
    assert drawn[-1] >= 6
    assert len(drawn) >= 5


def test_scalars_that_are_tied_to_one_another_are_chosen_together():
    rules = (
        "0 <= start < end <= vocab", "vocab <= added_start <= added_end <= all_ids",
        "(end - start) + (added_end - added_start) <= rows",
    )  # fmt: skip
    names = ("start", "end", "added_start", "added_end")
    inputs = {"ids": tensor("n", "int64"), "w": tensor("rows h")} | {name: tensor(None, "int32") for name in names}
    shard = define("shard", axes(n=None, rows=None, vocab=1000, all_ids=1032, h=4), inputs, {"y": tensor("n h")},
                   "def run(ids, w, start, end, added_start, added_end):\n    return w\n", *rules)  # fmt: skip
    found = [
        tuple(make_inputs(shard, {"n": 3, "rows": rows}, Recipe(seed))[name] for name in names)
        for seed in range(12)
        for rows in (1, 5, 300, 5000)
    ]
    assert all(0 <= a < b <= 1000 <= c <= d <= 1032 for a, b, c, d in found)
    assert len({a for a, *_ in found}) > 6
    assert len({b - a for a, b, *_ in found}) > 4
    assert any(d > c for *_, c, d in found)
