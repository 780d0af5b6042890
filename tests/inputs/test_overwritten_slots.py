"""Slots that a reference only gives other values hold NaN in some cases; what is read or added to never does."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.overwritten_slots import pools
from pytest_flashinfer.inputs.integers.structure import structures
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from tests.inputs.contracts import axes, call, define, tensor

SIZES = {"n": 5, "pool": 12}


def append(reference, dtype="float32", shape="pool h w", sizes=None):
    return define(
        "append", axes(n=None, pool=None, h=2, w=4, **(sizes or {})),
        {"k": tensor("n h w", dtype), "k_cache": tensor(shape, dtype),
         "slot_mapping": tensor("n", "int32", description="slot of each; -1 pads")},
        {"new": tensor(shape, dtype, param="k_cache")}, reference,
    )  # fmt: skip


REPLACING = (
    "def run(k, k_cache, slot_mapping):\n    k_cache[slot_mapping.long()] = k\n    return k_cache",
    """
    def run(k, k_cache, slot_mapping):
        new, slots = k_cache.clone(), slot_mapping.to(torch.int64)
        assert k_cache.shape[1] == k.shape[1]
        new[slots[slots >= 0]] = k[slots >= 0]
        return new
    """,
    """
    def run(k, k_cache, slot_mapping):
        out = k_cache.clone()
        for i, slot in enumerate(slot_mapping.tolist()):
            if slot >= 0:
                out[slot, :, :] = k[i]
        return out
    """,
    """
    def run(k, k_cache, slot_mapping):
        new = k_cache.clone()
        new.index_copy_(0, slot_mapping.long(), k)
        return new
    """,
)
READING = (
    "def run(k, k_cache, slot_mapping):\n    k_cache[slot_mapping.long()] += k\n    return k_cache",
    "def run(k, k_cache, slot_mapping):\n    k_cache[slot_mapping.long(), :, :2] = k[:, :, :2]\n    return k_cache",
    """
    def run(k, k_cache, slot_mapping):
        new, slots = k_cache.clone(), slot_mapping.long()
        new[slots] = 0.5 * k_cache[slots] + k
        return new
    """,
    """
    def run(k, k_cache, slot_mapping):
        old = k_cache.clone()
        k_cache[slot_mapping.long()] = k
        return k_cache + 0 * old
    """,
    "",
)


@pytest.mark.parametrize("reference", REPLACING)
def test_slots_that_are_replaced_hold_nan_and_the_answer_none(reference):
    definition = append(reference)
    recipe = Recipe(3, structure="stale_nan")
    assert "stale_nan" in {recipe.structure for _, recipe in edge_cases(definition)[:12]}
    for seed in range(4):
        inputs = make_inputs(definition, SIZES, recipe.with_seed_after(seed))
        used = inputs["slot_mapping"].long()
        used = used[used >= 0]
        nan = inputs["k_cache"].isnan().flatten(1)
        assert torch.equal(nan.all(1).nonzero().flatten(), used.sort().values)
        assert not bool(nan[~nan.all(1)].any())
        if len(used) == SIZES["n"]:
            assert not bool(call(definition, inputs)[0].isnan().any())


@pytest.mark.parametrize("reference", READING)
def test_slots_that_are_read_never_do(reference):
    contract = contract_of(append(reference))
    assert pools(contract, plan_of(contract)) == {}
    assert "stale_nan" not in structures(contract, plan_of(contract))


def test_pages_are_counted_with_their_slots():
    reference = """
    def run(k, k_cache, slot_mapping):
        flat = k_cache.clone().view(-1, 2, 4)
        flat[slot_mapping.long()] = k
        return flat.view(k_cache.shape)
    """
    definition = append(reference, shape="pool page_size h w", sizes={"page_size": 4})
    inputs = make_inputs(definition, SIZES, Recipe(3, structure="stale_nan"))
    nan = inputs["k_cache"].isnan().all(-1).all(-1).flatten()
    used = inputs["slot_mapping"].long()
    assert torch.equal(nan.nonzero().flatten(), used[used >= 0].sort().values)


def test_8_bit_floats_stay():
    contract = contract_of(append(REPLACING[0], "float8_e4m3fn"))
    assert pools(contract, plan_of(contract)) == {}
