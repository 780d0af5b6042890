"""Tensors that constraints want sorted, without repeats, as permutations, or unlike each other."""

from __future__ import annotations

import ast

import pytest
import torch

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.inputs.constraints.arrangements import Arrangement, arrangements
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from tests.inputs.contracts import axes, define, tensor

X = {"x": tensor("m d")}
IN_RANGE = ("(ids >= 0).all()", "(ids < m).all()", "m >= 8")
SIZES = axes(n=None, m=None, k=6, d=4)
SAID = {
    "none_twice": (X | {"ids": tensor("n", "int64")}, "ids.unique().numel() == n", *IN_RANGE),
    "a_set": (X | {"ids": tensor("n", "int32")}, "len(set(ids.tolist())) == n", *IN_RANGE),
    "permutation": (X | {"ids": tensor("n", "int64")}, "sorted(ids.tolist()) == list(range(n))"),
    "sorted_as_all": (X | {"ids": tensor("n", "int64")}, "torch.equal(ids.sort().values, torch.arange(n))"),
    "rows_rise": (X | {"ids": tensor("n k", "int32")}, "(ids[:, 1:] > ids[:, :-1]).all()", *IN_RANGE),
    "never_falls": (X | {"ids": tensor("n", "int64")}, "(ids.diff() >= 0).all()", *IN_RANGE),
    "falls": (X | {"ids": tensor("n", "int64")}, "(ids[1:] <= ids[:-1]).all()", *IN_RANGE),
    "as_sorted": (X | {"ids": tensor("n", "int64")}, "torch.equal(ids, torch.sort(ids).values)", *IN_RANGE),
    "in_a_loop": (X | {"ids": tensor("n", "int64")}, "all(ids[i] < ids[i + 1] for i in range(n - 1))", *IN_RANGE),
    "unlike": (
        X | {"ids": tensor("n", "int64"), "others": tensor("n", "int64")}, "(ids != others).all()", *IN_RANGE,
        "(others >= 0).all()", "(others < m).all()",
    ),
    "unlike_a_number": (
        X | {"ids": tensor("n", "int64"), "pad": tensor(None, "int32")}, "(ids != pad).all()", *IN_RANGE,
    ),
    "unlike_a_size": (X | {"ids": tensor("n", "int64")}, "(ids != k).all()", *IN_RANGE),
    "floats_rise": ({"x": tensor("n k"), "knots": tensor("k", "bfloat16")}, "(knots[1:] > knots[:-1]).all()"),
    "some_of_each_row": ({"x": tensor("n m"), "mask": tensor("n m", "bool")}, "mask.any(-1).all()", "m >= 1"),
    "one_at_least": ({"x": tensor("n m"), "mask": tensor("n m", "bool")}, "(mask.sum(-1) >= 1).all()", "m >= 1"),
}  # fmt: skip


def definition_of(name):
    inputs, *constraints = SAID[name]
    shown = {axis for spec in inputs.values() for axis in spec.shape or ()}
    sizes = {axis: size for axis, size in SIZES.items() if axis in shown or axis in {"m", "k"}}
    return define(name, sizes, inputs, {"y": tensor(" ".join(next(iter(inputs.values())).shape))}, "", *constraints)


@pytest.mark.parametrize("name", SAID)
def test_every_edge_is_valid_and_draws_differ(name):
    definition = definition_of(name)
    cases = edge_cases(definition, max_elements=1 << 12, limit=40)
    assert len(cases) > 10
    told = next(each for each in ("ids", "knots", "mask") if each in definition.inputs)
    drawn = [make_inputs(definition, sizes, recipe)[told] for sizes, recipe in cases]  # raises where one is broken
    assert len({str(each.tolist()) for each in drawn}) > len(drawn) // 3


@pytest.mark.parametrize(("text", "expected"), [
    ("len(torch.unique(x)) == len(x)", Arrangement("distinct", "x")),
    ("n == x.unique().shape[0]", Arrangement("distinct", "x")),
    ("(x.sort(dim=-1).values == torch.arange(n)).all()", Arrangement("permutation", "x")),
    ("sorted(x.tolist()) == x.tolist()", Arrangement("rising", "x")),
    ("torch.equal(torch.sort(x)[0], x)", Arrangement("rising", "x")),
    ("bool((x[..., :-1] < x[..., 1:]).all())", Arrangement("strictly rising", "x")),
    ("(torch.diff(x, dim=-1) >= 1).all()", Arrangement("strictly rising", "x")),
    ("(x != y).all()", Arrangement("unlike", "x", "y")),
    ("(x.sum(dim=-1) > 0).all()", Arrangement("some", "x")),
])  # fmt: skip
def test_what_is_recognised(text, expected):
    assert expected in arrangements(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("text", [
    "x.unique().numel() <= 4", "len(x) == n", "(x[1:] >= y[:-1]).all()", "(x[2:] >= x[:-2]).all()", "x != 0",
    "(x.diff(dim=0) >= 0).all()", "x.sum() >= 1", "x.any()", "sorted(x.tolist()) == y.tolist()",
])  # fmt: skip
def test_what_is_not(text):
    assert list(arrangements(ast.parse(text, mode="eval").body)) == []


def test_rows_that_sum_to_one_are_probabilities():
    for constraint in ("((w.sum(-1) - 1).abs() < 1e-3).all()", "torch.allclose(w.sum(dim=-1), torch.ones(n))"):
        definition = define("mix", axes(n=None, k=8), {"w": tensor("n k")}, {"y": tensor("n k")}, "", constraint)
        assert plan_of(contract_of(definition)).roles["w"].kind == "probs"
        rows = make_inputs(definition, {"n": 50}, Recipe(0))["w"]
        assert torch.allclose(rows.sum(-1), torch.ones(50))


@pytest.mark.parametrize("text", [
    "torch.allclose(w.sum(dim=-1), torch.ones(n))", "torch.isclose(w.sum(-1), torch.ones(n)).all()",
    "torch.zeros((n, 8)).sum() == 0",
])  # fmt: skip
def test_words_of_torch_are_computed(text):
    assert parse(text).holds({"w": torch.full((3, 8), 0.125), "n": 3})


@pytest.mark.parametrize("sizes", ["n, n", "(n, n)", "size=(n, n)"])
def test_constants_of_torch_stay_small(sizes):
    with pytest.raises(ConstraintError, match=r"torch\.zeros of more than 16777216 numbers"):
        parse(f"torch.zeros({sizes}).sum() == 0").holds({"n": 1 << 20})
