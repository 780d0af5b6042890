"""Dtypes that torch stores and hardly computes in: integers of 16 bits and more without a sign, and codes of floats."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.inputs.constraints.elements import limits_in, put_right
from pytest_flashinfer.inputs.constraints.facts import read
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.rearrange import rearranged
from pytest_flashinfer.inputs.integers.structure import structures
from pytest_flashinfer.inputs.one_changed import one_id
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.variant import KINDS, variant
from tests.inputs.contracts import ALL, axes, define, tensor

UNSIGNED = ("uint16", "uint32", "uint64")
INTS = ("int32", "int64")
COMPARED = define(
    "compared", axes(n=None, k=4, rows=None, total=None, batch=None),
    {"x": tensor("rows k"), "q": tensor("total k"), "ids": tensor("n k", "int32"),
     "draft_ids": tensor("n k", "int32"), "target_ids": tensor("n k", "int32"), "q_lens": tensor("batch", "int32"),
     "kv_lens": tensor("batch", "int32"), "max_kv_len": tensor(None, "int32")},
    {"y": tensor("n k")},
    """
    def run(x, q, ids, draft_ids, target_ids, q_lens, kv_lens, max_kv_len):
        return (draft_ids == target_ids).float()
    """,
    "(ids < rows).all()", "(ids >= 2).all()", "rows > 8", "(q_lens <= kv_lens).all()", "total == q_lens.sum().item()",
)  # fmt: skip
SCALES = define(
    "scales", axes(n=None, k=8), {"x": tensor("n k", "int8"), "x_scale": tensor("n k", "int32")}, {"y": tensor("n k")},
    "",
)  # fmt: skip
PADDED = define(
    "padded", axes(n=None, rows=None, d=2),
    {"table": tensor("rows d"), "x": tensor("n d"), "slot_ids": tensor("n", "int64", description="65535 pads")},
    {"y": tensor("n d")}, "", "(slot_ids != 7).all()",
)  # fmt: skip
CONTRACTS = {each.name: each for each in (*ALL, COMPARED, SCALES, PADDED)}
WITH_INTEGERS = [n for n, d in CONTRACTS.items() if any(i.shape and i.dtype in INTS for i in d.inputs.values())]


def unsigned(definition, dtype):
    inputs = {
        name: replace(spec, dtype=dtype) if spec.shape and spec.dtype in INTS else spec
        for name, spec in definition.inputs.items()
    }
    return replace(definition, inputs=inputs)


def signed(inputs):
    return {n: x.long() if isinstance(x, torch.Tensor) and "uint" in str(x.dtype) else x for n, x in inputs.items()}


def holds(definition, sizes, inputs) -> bool:
    env = {**definition.const_axes, **sizes, **signed(inputs)}
    return all(rule.holds(env) for rule in contract_of(definition).reading.data)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("name", WITH_INTEGERS)
def test_whatever_has_unsigned_integers_is_drawn_and_changed_as_others_are(name, dtype):
    definition = unsigned(CONTRACTS[name], dtype)
    plan = plan_of(contract_of(definition))
    cases = edge_cases(definition, [], 1 << 14)[:4]
    names = structures(contract_of(definition), plan)[-4:]
    cases += [(cases[-1][0], Recipe(seed, structure=each)) for seed, each in enumerate(names)]
    made = 0
    for sizes, recipe in cases:
        try:
            inputs = make_inputs(definition, sizes, recipe)
        except InputsError:
            continue
        made += 1
        assert holds(definition, sizes, inputs)
        for changed in (rearranged(definition, sizes, inputs, recipe.seed), one_id(definition, sizes, inputs, 1)):
            assert all(x.dtype == inputs[n].dtype for n, x in changed.items())
            assert holds(definition, sizes, {**inputs, **changed})
        for kind in KINDS:
            variant(inputs, definition, sizes, kind, torch.Generator().manual_seed(recipe.seed))
    assert made > len(cases) / 2


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("(x[1:] >= x[:-1]).all()", True),
        ("(x[1:] - x[:-1] <= 2).all()", False),
        ("x.max().item() == 7 and x.min() == 0", True),
        ("(x % 2 == 0).any() and torch.diff(x).sum() == 7", True),
        ("all(n < 7 for n in x)", False),
        ("x.dtype == torch.{dtype}", True),
        ("x.dtype == torch.int64", False),
    ],
)
def test_a_constraint_on_unsigned_integers_is_computed(text, true, dtype):
    x = torch.tensor([0, 4, 7]).to(getattr(torch, dtype))
    rules = read((text.format(dtype=dtype),), {"x": ("n",)}).data
    assert all(rule.holds({"x": x, "n": 3}) for rule in rules) is true


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_elements_beyond_a_bound_are_put_right_within_the_range_of_the_dtype(dtype):
    x = torch.tensor([0, 5, 13, 40]).to(getattr(torch, dtype))
    rules = read(("(x >= -5).all()", "(x <= 10).all()", "(x != 12).all()"), {"x": ("n",)}).data
    limits = list(limits_in((rule.tree for rule in rules), ["x"]))
    assert put_right({"x": x}, limits) == {"x"}
    assert x.dtype is getattr(torch, dtype)
    assert x.tolist()[:2] == [0, 5]
    assert max(x.tolist()) <= 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float4_e2m1fn_x2", "float8_e8m0fnu", "float4_e2m1", "int4"])
def test_bytes_of_floats_that_torch_does_not_compute_with_are_changed(kind, dtype):
    definition = define("codes", axes(n=None, k=8), {"q": tensor("n k", dtype)}, {"y": tensor("n k")}, "")
    inputs = make_inputs(definition, {"n": 4}, Recipe(1))
    changed = variant(inputs, definition, {"n": 4}, kind, torch.Generator().manual_seed(1))["q"]
    assert (changed.dtype, changed.shape) == (inputs["q"].dtype, inputs["q"].shape)
    differ = int((changed.view(torch.uint8) != inputs["q"].view(torch.uint8)).sum())
    assert {"one_changed": differ == 1, "permuted": differ == 2}.get(kind, differ > 0)
