"""Bounds on each element, in the usual spellings: every family keeps to them, and stays as varied as it was."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.inputs.constraints.elements import limits_of
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import Unsatisfiable
from pytest_flashinfer.inputs.floats.families import FAMILIES, SPECIAL
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.variant import KINDS, variant
from tests.inputs.contracts import axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"
SIZES = {"n": 6}
PLAIN = [name for name in FAMILIES if name not in SPECIAL]
BOUNDS = [
    "(x > 0).all()",
    "bool((x > 0).all())",
    "torch.all(x >= 0)",
    "all(x.flatten() >= 0)",
    "x.min() > 0",
    "float(torch.min(x)) > 0.5",
    "x.max() <= 1",
    "x.amax().item() < -2",
    "abs(x).max() <= 1",
    "bool((torch.abs(x) < 3).all())",
    "x.float().abs().max() < 1e-3",
    "((0.5 < x) & (x < 0.51)).all()",
    "((1e-44 < x) & (x < 1)).all()",
    "0 < x.min() and x.max() < 1",
    "0 <= x.min() <= x.max() <= 1",
    "bool(((x >= -0.25) & (0.75 > x)).all())",
    "(x[:, 0] == 1).all() and bool((x[:, 1:] < n).all())",
    "(x <= y).all()",
    "(x[:, 1:] > y[:, :-1]).all() and (y >= 0).all()",
    "bool((x >= torch.arange(h, device=x.device)).all())",
]


def floats(*constraints, dtype="float32", sizes=None):
    inputs = {"x": tensor("n h", dtype), "y": tensor("n h", dtype)}
    return define("bounded", sizes or axes(n=None, h=16), inputs, {"z": tensor("n h")}, NOTHING, *constraints)


def integers(*constraints, **specs):
    inputs = {"parents": tensor("n h", "int32", **specs), "most": tensor("n h", "int32")}
    return define("tree", axes(n=None, h=8), inputs, {"z": tensor("n h")}, NOTHING, *constraints)


def keeps(constraint, inputs, **sizes):
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    return bool(parse(constraint).evaluate({**tensors, **sizes}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("constraint", BOUNDS)
def test_every_family_keeps_to_the_bounds_of_floats(constraint, dtype):
    definition = floats(constraint, dtype=dtype)
    for number, family in enumerate(PLAIN):
        inputs = make_inputs(definition, SIZES, Recipe(number, family=family))
        assert inputs["x"].isfinite().all()
        for kind in KINDS:
            generator = torch.Generator().manual_seed(number)
            other = variant(inputs, definition, SIZES, kind, generator)
            assert keeps(constraint, other, n=6, h=16), (family, kind)


@pytest.mark.parametrize("constraint", ["(x > 0).all()", "x.max() <= 1", "abs(x).max() <= 1", "(x < 1).all()"])
def test_values_that_are_within_stay_and_the_others_differ(constraint):
    free, bound = (make_inputs(floats(*more), SIZES, Recipe(3))["x"] for more in ((), (constraint,)))
    moved = free != bound
    assert 0.1 < moved.float().mean() < 0.9
    assert len(bound.unique()) == bound.numel()


def test_ties_stay_ties():
    values = make_inputs(floats("(x > -0.25).all()"), SIZES, Recipe(3, family="ties"))["x"]
    assert set(values.unique().tolist()) == {0.0, 0.5}


def test_a_bound_that_is_left_out_is_near_and_not_reached():
    zeros = make_inputs(floats("(x > 0).all()"), SIZES, Recipe(3, family="zero_rows"))["x"]
    assert 0 < zeros.min() < 1e-6


@settings(deadline=None)
@given(st.data())
def test_elements_lie_between_any_numbers(data):
    low = data.draw(st.floats(-1000, 1000), "low")
    high = low + data.draw(st.floats(0.125, 1000), "span")
    ends = data.draw(st.tuples(st.sampled_from(("<", "<=")), st.sampled_from(("<", "<="))), "ends")
    constraint = f"(({low!r} {ends[0]} x) & (x {ends[1]} {high!r})).all()"
    family = data.draw(st.sampled_from(PLAIN), "family")
    inputs = make_inputs(floats(constraint), SIZES, Recipe(data.draw(st.integers(0, 99)), family=family))
    assert keeps(constraint, inputs)


PARENTS = (
    "bool((parents[:, 0] == -1).all())",
    "bool((parents[:, 1:] >= 0).all())",
    "bool((parents[:, 1:] < torch.arange(1, h, device=parents.device)).all())",
)


def test_a_tree_of_parents_that_come_first():
    definition = integers(*PARENTS, description="parent of each node, -1 for the root")
    drawn = torch.cat([make_inputs(definition, SIZES, Recipe(seed))["parents"] for seed in range(20)])
    assert all(keeps(constraint, {"parents": drawn}, h=8) for constraint in PARENTS)
    assert [len(column.unique()) for column in drawn.T] == [1, 1, 2, 3, 4, 5, 6, 7], "every parent occurs"


@pytest.mark.parametrize(
    "constraint",
    [
        "(parents <= most).all()",
        "(most > parents).all()",
        "(parents[0] == 3).all() and (parents[1:, -1] == n).all()",
        "(parents[:, 1::2] == most[:, ::2]).all()",
        "(parents.float() < 2.5).all() and (parents[1:] > 0.5).all()",
        "bool((parents[:, :4] <= torch.arange(4)).all())",
    ],
)
def test_integers_are_bounded_by_numbers_sizes_and_other_inputs(constraint):
    for seed in range(10):
        inputs = make_inputs(integers(constraint), SIZES, Recipe(seed))
        assert inputs["parents"].min() >= 0, "no bound says that there is less"


@pytest.mark.parametrize(
    "constraint",
    [
        "(parents > most).all() and (parents < most).all()",
        "(parents == 0.5).all()",
        "(parents[:, 0] == -1).all() and (parents >= 0).all()",
        "parents.sum() == -1",
    ],
)
def test_what_no_element_meets_is_said(constraint):
    with pytest.raises(Unsatisfiable, match="no rule for this constraint"):
        make_inputs(integers(constraint), SIZES, Recipe(1))


def test_pointers_and_lengths_are_not_bent():
    """What others follow from would fit them no longer."""
    inputs = {"x": tensor("total h"), "indptr": tensor("m", "int32"), "seq_lens": tensor("n", "int32")}
    definition = define(
        "ragged", axes(n=None, m=None, total=None, h=4), inputs, {"y": tensor("total h")}, NOTHING,
        "m == n + 1", "total == indptr[-1].item()", "(indptr[1:3] == 1).all()",
    )  # fmt: skip
    with pytest.raises(Unsatisfiable, match="indptr"):
        make_inputs(definition, {"n": 4, "total": 9}, Recipe(1))


@pytest.mark.parametrize(
    "constraint",
    ["(x > 0).any()", "x.max() > 0", "x.min() < 1", "(x > 0).all() or (x < 0).all()", "x.sum() > 0", "abs(x) > 0"],
)
def test_what_bounds_some_elements_only_is_no_bound_of_each(constraint):
    assert limits_of(contract_of(floats(constraint))) == ()


def test_ranges_of_whole_numbers_are_computed_and_not_too_large_ones():
    assert parse("torch.arange(1, n).max() == 4").holds({"n": 5})
    assert parse("(torch.arange(3, dtype=torch.int32) == x).all()").holds({"x": torch.arange(3)})
    with pytest.raises(ConstraintError, match="more than"):
        parse("torch.arange(n).max() == 4").holds({"n": 1 << 30})
    with pytest.raises(ConstraintError):
        parse("torch.arange(2, dtype='load').max() == 4").holds({})


@pytest.mark.parametrize("constraint", [
    "(mask[:, 0] == True).all()", "mask[:, 0].all()", "torch.all(mask[:, 0])",
    "(mask[:, 0] == 1).all()", "bool((mask[:, 0] == True).all()) and (mask[:, 1] == False).all()",
])  # fmt: skip
def test_parts_of_a_mask_are_true_or_false(constraint):
    inputs = {"x": tensor("n h"), "mask": tensor("n h", "bool")}
    masked = define("masked", axes(n=None, h=8), inputs, {"y": tensor("n h")}, "", constraint)
    for structure in ("mixed", "uniform"):
        mask = make_inputs(masked, {"n": 40, "h": 8}, Recipe(0, structure=structure))["mask"]
        assert mask.dtype == torch.bool
        assert mask[:, 0].all()
    mask = make_inputs(masked, {"n": 40, "h": 8}, Recipe(0))["mask"]
    assert mask[:, 2:].any()
    assert not mask[:, 2:].all()


def test_numbers_that_are_true_are_any_but_zero():
    definition = define("d", axes(n=None), {"x": tensor("n"), "ids": tensor("n", "int32")}, {"y": tensor("n")}, "",
                        "(ids >= 1).all()", "ids.all()")  # fmt: skip
    assert len(make_inputs(definition, {"n": 40}, Recipe(0))["ids"].unique()) > 9


def test_bounds_are_met_in_some_cases():
    """A draw hardly hits 0, which `top_p >= 0` allows; where an end is left out it never is."""
    inputs = {"x": tensor("n h"), "top_p": tensor("n"), "scale": tensor("n")}
    rules = ("bool(((top_p >= 0) & (top_p <= 1)).all())", "(scale > 0).all()")
    bounded = define("bounded", axes(n=None, h=8), inputs, {"y": tensor("n h")}, "", *rules)
    made = [make_inputs(bounded, {"n": 5}, Recipe(seed, family="tiny")) for seed in range(60)]
    assert 1 < sum(bool((each["top_p"] == 0).any()) for each in made) < 20
    assert all((each["scale"] > 0).all() for each in made)
    plain = [make_inputs(bounded, {"n": 5}, Recipe(seed)) for seed in range(60)]
    assert all((each["top_p"] > 0).all() for each in plain), "as listed workloads are"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("((m == 0) | (m == 1)).all()", {0.0, 1.0}),
        ("torch.all((m == -1.0) | (1.0 == m))", {-1.0, 1.0}),
        ("((m == 0) | (m == 0.5) | (m == top)).all()", {0.0, 0.5, 2.0}),
    ],
)
def test_floats_of_a_few_values_take_all_of_them(dtype, rule, allowed):
    """A mask of zeros and ones is often one of floats."""
    sizes, inputs = axes(n=None, top=2), {"x": tensor("n"), "m": tensor("n", dtype)}
    masked = define("masked", sizes, inputs, {"y": tensor("n")}, NOTHING, rule)
    for family in FAMILIES:
        made = make_inputs(masked, {"n": 64}, Recipe(3, family=family))["m"]
        assert set(made.tolist()) <= allowed
        assert family != "normal" or set(made.tolist()) == allowed


def test_other_contents_have_other_ones_of_a_few_values():
    rule = "((m == 0) | (m == 1)).all()"
    masked = define("masked", axes(n=None), {"x": tensor("n"), "m": tensor("n")}, {"y": tensor("n")}, NOTHING, rule)
    first = make_inputs(masked, {"n": 64}, Recipe(3))
    other = variant(first, masked, {"n": 64}, "same_ends", torch.Generator().manual_seed(1))["m"]
    assert set(other.tolist()) == {0.0, 1.0}
    assert not torch.equal(other, first["m"])
    assert all(other[place] == first["m"][place] for place in (0, 32, 63))
