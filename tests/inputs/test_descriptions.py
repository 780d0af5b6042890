"""What descriptions and references say in numbers shapes the sizes and scalars of a case."""

from __future__ import annotations

import ast

import pytest
import torch

from pytest_flashinfer.data.model import Axis
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles import descriptions
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"


def sized(words, **others):
    inputs = {"x": tensor("rows n m"), "y": tensor("k"), **others}
    sizes = {**axes(n=None, m=None, k=None), "rows": Axis("var", description=words)}
    return define("sized", sizes, inputs, {"z": tensor("rows")}, NOTHING)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("n + 1", "n + 1"),
        ("Length of offsets (n + 1).", "n + 1"),
        ("x.shape[0] = n * m (n for one each).", "n * m"),
        ("Rows, n * m in all", "n * m"),
        ("derived as n // 2", "n // 2"),
        ("n * step rows.", "n * step"),
        ("n * m (n for one each)", "n * m"),
        ("n * m query tokens.", "n * m"),
        ("n * m or rows", None),
        ("at most n * m", None),
        ("may be n * n at most, usually fewer", None),
        ("Capacity; it can be n * m or larger.", None),
        ("Must never be n + 1.", None),
        ("Padded rows (n * m upper bound)", None),
        ("Kept rows, n * m at most", None),
        ("n + 1 if packed, else n", None),
        ("(n + 1) // 2", None),
        (">= n * m", None),
        ("a multiple of 2 * n", None),
        ("(n + 1) * m", None),
        ("Key/value rows of top-k", None),
        ("unknown_axis + 1", None),
        ("always 1", None),
        (None, None),
    ],
)
def test_arithmetic_that_stands_for_an_axis(words, rule):
    found = descriptions.arithmetic(sized(words, step=tensor(None, "int32")))
    assert {name: ast.unparse(tree) for name, tree in found.items()} == ({} if rule is None else {"rows": rule})


def test_sizes_follow_from_what_is_told_and_yield_to_what_is_given():
    definition = sized("n * step rows.", step=tensor(None, "int32"))
    for sizes, recipe in edge_cases(definition, max_elements=1 << 12, limit=30):
        inputs = make_inputs(definition, sizes, recipe)
        assert sizes["rows"] == sizes["n"] * inputs["step"] or sizes["n"] == 0
    plain = sized("n + 1")
    sizes, recipe = edge_cases(plain)[0]
    assert make_inputs(plain, {**sizes, "rows": 9}, recipe)["x"].shape[0] == 9  # words bind no workload


def test_an_unknown_that_two_axes_are_made_of_is_one_size():
    total, ends = ("batch_size * step tokens.", "Entries (batch_size + 1)")
    sizes = {"total": Axis("var", description=total), "ends": Axis("var", description=ends), **axes(h=4)}
    inputs = {"x": tensor("total h"), "ends": tensor("ends"), "step": tensor(None, "int32")}
    definition = define("hidden", sizes, inputs, {"y": tensor("total h")}, NOTHING)
    for given, recipe in edge_cases(definition, max_elements=1 << 12, limit=20):
        step = make_inputs(definition, given, recipe)["step"]
        assert given["total"] == (given["ends"] - 1) * step


def test_a_constraint_counts_more_than_words():
    definition = define("tied", {**axes(n=None), "rows": Axis("var", description="n + 1")}, {"x": tensor("rows n")},
                        {"y": tensor("n")}, NOTHING, "rows == 2 * n")  # fmt: skip
    assert all(sizes["rows"] == 2 * sizes["n"] for sizes, _ in edge_cases(definition, limit=12))


def test_a_range_bounds_ids():
    words = tensor("n", "int32", description="Which row each takes, in [2, rows).")
    inputs = {"x": tensor("rows"), "which": words}
    definition = define("ranged", axes(n=None, rows=7), inputs, {"y": tensor("n")}, NOTHING)
    drawn = {int(i) for case in edge_cases(definition, limit=20) for i in make_inputs(definition, *case)["which"]}
    assert drawn == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("words", ["Token ids in [batch, seq] order.", "index in [m, 0]", "in [rows, 7)"])
def test_brackets_that_hold_no_number_first_are_no_range(words):
    inputs = {"x": tensor("rows"), "which": tensor("n", "int32", description=words)}
    definition = define("ranged", axes(n=None, rows=7), inputs, {"y": tensor("n")}, NOTHING)
    assert not descriptions.ranges(definition)


def scalar(description="", reference=NOTHING, name="activation_type", **others):
    spec = tensor(None, "int32", description=description)
    definition = define("modes", axes(n=None, num_experts=8), {"x": tensor("n num_experts"), name: spec, **others},
                        {"y": tensor("n")}, reference)  # fmt: skip
    return make_inputs(definition, *edge_cases(definition)[0])[name]


def test_integer_scalars_take_a_named_mode_or_the_references_default():
    assert scalar("3=SwiGLU, 7=SwiGLUStep, 6=ReLU2.") == 3
    assert scalar("n = 3") == 0  # one name is no list
    assert scalar(reference="def run(x, activation_type=5):\n    return x[:, 0]\n") == 5
    assert scalar(reference="def run(x, num_extra_experts=0):\n    return x[:, 0]\n", name="num_extra_experts") == 0


def every_scalar(description="", reference=NOTHING, *constraints):
    definition = define("modes", axes(n=None, h=4), {"x": tensor("n h"), "act": tensor(None, "int32",
                        description=description)}, {"y": tensor("n h")}, reference, *constraints)  # fmt: skip
    drawn = [make_inputs(definition, *case)["act"] for case in edge_cases(definition, limit=20)]
    return drawn[0], set(drawn)


def test_every_mode_that_a_description_names_is_tried():
    assert every_scalar("0=none, 1=relu, 2=gelu") == (0, {0, 1, 2})
    assert every_scalar("2=int2, 4=int4, 8=int8", NOTHING, "act >= 4") == (4, {4, 8})
    assert every_scalar("0=none, 1=relu", "def run(x, act=1):\n    return x\n") == (1, {0, 1})


def test_a_default_is_tried_first_but_not_alone():
    assert every_scalar(reference="def run(x, act=0):\n    return x + act\n") == (0, {0, 1})
    assert every_scalar(reference="def run(x, act=True):\n    return x + act\n") == (1, {0, 1})
    assert every_scalar("", "def run(x, act=0):\n    return x + act\n", "act <= 0") == (0, {-1, 0})


@pytest.mark.parametrize("name", ["num_extra_experts", "sf_vec_size", "block_size", "return_lse", "max_len"])
def test_a_default_that_shapes_and_outputs_fit_is_kept(name):
    definition = define("kept", axes(n=None, h=4), {"x": tensor("n h"), name: tensor(None, "int32")},
                        {"y": tensor("n h")}, f"def run(x, {name}=32):\n    return x\n")  # fmt: skip
    assert grid_of(definition).scalars == {}


SCRATCH = """
def run(x, buffer=None, state=None):
    if buffer is not None:
        buffer[0] = x[0]
    if state is not None:
        state += x
    return x, state
"""


def test_an_optional_input_that_is_only_written_into_is_left_out():
    inputs = {"x": tensor("n h"), "buffer": tensor("n h", optional=True), "state": tensor("n h", optional=True)}
    outputs = {"y": tensor("n h"), "new": tensor("n h", param="state")}
    definition = define("scratch", axes(n=None, h=4), inputs, outputs, SCRATCH)
    assert contract_of(definition).scratch == {"buffer"}
    assert grid_of(definition).optional == ("state",)
    drawn = [make_inputs(definition, *case) for case in edge_cases(definition, limit=20)]
    assert all(inputs["buffer"] is None for inputs in drawn)
    assert {inputs["state"] is None for inputs in drawn} == {True, False}


def scratch(*lines):
    text = "\n    ".join(("def run(x, bias=None):", "if bias is None:", "    return x", *lines, "return x + bias\n"))
    inputs = {"x": tensor("n"), "bias": tensor("n", optional=True)}
    return contract_of(define("anew", axes(n=None), inputs, {"y": tensor("n")}, text)).scratch == {"bias"}


@pytest.mark.parametrize(
    "lines",
    [
        ("bias = bias.clone()", "bias += 1"),
        ("bias, two = bias.clone(), 2", "bias *= two"),
        ("[x, (bias, *_)] = x, (bias.clone(), 2)", "bias[0] = 1"),
        ("bias: torch.Tensor = bias.clone()", "bias[0:1] = 0"),
        ("for bias in [bias.clone()]:", "    bias[0] = 0"),
        ("bias.requires_grad_(False)",),
        ("bias.custom_()",),
        ("def zeroed(bias):", "    bias[0] = 0", "    return bias", "bias = zeroed(bias.clone())"),
        ("def zeroed(bias):", "    bias[0] = 0", "    return bias", "x = x + zeroed(bias.clone())"),
        ("fill = lambda bias: bias.zero_()",),
        ("def other():", "    bias = x.clone()", "    bias[0] = 0"),
    ],
)
def test_a_name_given_anew_is_no_scratch(lines):
    assert not scratch(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        ("bias += 1",),
        ("bias[0][1] = 1",),
        ("two, bias[0] = 2, 1",),
        ("bias: torch.Tensor", "bias[0] = 1"),
        ("bias.index_copy_(0, x.long(), x)",),
        ("bias[1:].log1p_()",),
        ("def put():", "    bias[0] = 0", "put()"),
    ],
)
def test_what_the_reference_writes_into_is_scratch(lines):
    assert scratch(*lines)


@pytest.mark.parametrize(
    ("sizes", "inputs", "holds"),
    [
        (axes(n=None, num_kv_heads=None, num_heads=12),
         {"k": tensor("n num_kv_heads"), "q": tensor("n num_heads")},
         lambda s: 12 % s["num_kv_heads"] == 0),
        (axes(K=64, N=32, K_div_block=None, N_div_block=None),
         {"s": tensor("K_div_block N_div_block"), "w": tensor("K N")},
         lambda s: 64 % s["K_div_block"] == 0 and 64 * s["N_div_block"] == 32 * s["K_div_block"]),
        (axes(n=None, scale_size=None),
         {"x": tensor("n"), "scale_a": tensor("scale_size"), "b_scale": tensor("scale_size")},
         lambda s: s["scale_size"] == 1),
        (axes(n=None, num_experts=None, num_local_experts=8),
         {"w": tensor("num_local_experts"), "x": tensor("n num_experts")},
         lambda s: s["num_experts"] >= 8),
    ],
)  # fmt: skip
def test_names_promise_what_no_constraint_states(sizes, inputs, holds):
    definition = define("promised", sizes, inputs, {"y": tensor(" ".join(list(sizes)[:1]))}, NOTHING)
    cases = edge_cases(definition, max_elements=1 << 14, limit=30)
    assert len(cases) > 2
    assert all(holds(case[0]) for case in cases)


@pytest.mark.parametrize(
    ("sizes", "inputs", "constraint", "seen"),
    [
        (axes(n=None, num_groups=None), {"x": tensor("n"), "x_scale": tensor("num_groups")}, "n >= 0",
         lambda s: s["num_groups"] > 1),
        (axes(n=None, scale_size=None), {"x": tensor("n"), "scale": tensor("scale_size")}, "scale_size >= 2",
         lambda s: s["scale_size"] >= 2),
        (axes(n=None, num_v_heads=None, num_q_heads=4),
         {"v": tensor("n num_v_heads"), "q": tensor("n num_q_heads")}, "num_v_heads % num_q_heads == 0",
         lambda s: s["num_v_heads"] > 4),
        (axes(n=None, num_shared_experts=None, num_local_experts=8),
         {"w": tensor("num_local_experts"), "x": tensor("n num_shared_experts")}, "n >= 0",
         lambda s: s["num_shared_experts"] < 8),
    ],
)  # fmt: skip
def test_constraints_and_other_names_promise_nothing(sizes, inputs, constraint, seen):
    definition = define("free", sizes, inputs, {"y": tensor("n")}, NOTHING, constraint)
    assert any(seen(case[0]) for case in edge_cases(definition, max_elements=1 << 14, limit=30))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("K may be anything, also 0.", {"K"}),
        ("K can be zero: then only the bias is left.", {"K"}),
        ("K is never 0.", set()),
        ("K is at most 10. Rows may be 0.", set()),
        ("", set()),
    ],
)
def test_axes_that_may_be_nothing(text, found):
    inputs = {"a": tensor("M K"), "w": tensor("N K")}
    product = define("gemm", axes(M=None, K=None, N=8), inputs, {"y": tensor("M N")}, "", description=text)
    assert descriptions.may_be_zero(product) == found


@pytest.mark.parametrize(
    ("text", "negative", "zero"),
    [
        ("multiplier of each row after the norm", False, False),
        ("any finite value, 0 and negative ones included", True, True),
        ("scale of each row, of either sign", True, False),
        ("scale of each row; zeros are allowed, no negative values allowed", False, True),
        ("scale of each row, no zeros allowed", False, False),
    ],
)
def test_scales_have_the_signs_and_zeros_that_their_description_allows(text, negative, zero):
    inputs = {"x": tensor("n h"), "row_scale": tensor("n", "float32", description=text)}
    definition = define("scaled", axes(n=None, h=8), inputs, {"y": tensor("n h")}, "")
    drawn = torch.cat([make_inputs(definition, {"n": 7, "h": 8}, Recipe(seed))["row_scale"] for seed in range(12)])
    assert bool((drawn < 0).any()) is negative
    assert bool((drawn == 0).any()) is zero
