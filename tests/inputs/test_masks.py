"""Masks change between calls as values do, and let as much through."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.masks import flipped, moved
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.variant import KINDS, variant
from tests.inputs.contracts import axes, define, tensor

SHAPES = st.sampled_from([(7,), (1,), (4, 9), (5, 1), (1, 6), (2, 3, 8)])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def mask_of(shape, share, seed, dtype=torch.bool):
    return (torch.rand(shape, generator=generator(seed)) < share).to(dtype)


def counts(mask):
    rows = mask.reshape(-1, mask.shape[-1]) if mask.dim() > 1 and mask.shape[-1] > 1 else mask.reshape(1, -1)
    return (rows != 0).sum(1).tolist()


@given(SHAPES, st.floats(0, 1), st.integers(0, 99), st.sampled_from([torch.bool, torch.uint8, torch.int32]), st.data())
def test_each_row_lets_as_much_through_and_fixed_places_stay(shape, share, seed, dtype, data):
    old = mask_of(shape, share, seed, dtype)
    fixed = data.draw(st.sets(st.integers(0, old.numel() - 1), max_size=3))
    new = moved(old, "mask", generator(seed), fixed)
    assert (new.shape, new.dtype) == (old.shape, old.dtype)
    assert counts(new) == counts(old)
    assert all(new.view(-1)[place] == old.view(-1)[place] for place in fixed)


def test_rows_that_can_be_others_are():
    old = mask_of((40, 12), 0.7, 3)
    new = moved(old, "mask", generator())
    assert float((new != old).any(1).float().mean()) > 0.8


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.uint32, torch.int64])
def test_words_of_bits_change_places_but_the_last_of_a_row(dtype):
    old = torch.arange(1, 25).view(4, 6).to(dtype)
    new = moved(old, "bits", generator(), {0})
    assert new.dtype is dtype
    assert torch.equal(new[:, -1].long(), old[:, -1].long())
    assert torch.equal(new[0].long(), old[0].long()), "a row with a fixed place stays"
    assert torch.equal(new.long().sort(1).values, old.long())
    assert not torch.equal(new[1:].long(), old[1:].long())


@given(SHAPES, st.floats(0, 1), st.integers(0, 99))
def test_one_element_is_flipped_and_no_row_is_emptied(shape, share, seed):
    old = mask_of(shape, share, seed)
    new = flipped(old, Random(seed))
    if new is None:
        assert max(counts(old)) == 1
    else:
        assert int((new != old).sum()) == 1
        assert all(after > 0 for before, after in zip(counts(old), counts(new), strict=True) if before)


MASKED = {"x": tensor("rows h"), "mask": tensor("rows", "bool"), "seen": tensor("rows h", "bool")}


@pytest.mark.parametrize("kind", KINDS)
def test_contents_of_every_kind_have_other_masks(kind):
    definition = define("masked", axes(rows=None, h=16), MASKED, {"y": tensor("rows h")}, "")
    sizes = {"rows": 40, "h": 16}
    changed = {"mask": 0, "seen": 0}
    for seed in range(12):
        inputs = make_inputs(definition, sizes, Recipe(seed))
        other = variant(inputs, definition, sizes, kind, generator(seed))
        for name in changed:
            changed[name] += not torch.equal(inputs[name], other[name])
            if kind == "same_ends":
                flat = inputs[name].view(-1), other[name].view(-1)
                assert all(flat[0][place] == flat[1][place] for place in (0, len(flat[0]) // 2, -1))
    assert all(count > (1 if kind == "one_changed" else 9) for count in changed.values()), changed


def test_a_mask_that_a_constraint_ties_stays():
    rule = "(mask == (x[:, 0] > 0)).all()"
    inputs = {"x": tensor("rows h"), "mask": tensor("rows", "bool")}
    definition = define("tied", axes(rows=None, h=4), inputs, {"y": tensor("rows h")}, "", rule)
    x = torch.randn(9, 4, generator=generator())
    found = variant({"x": x, "mask": x[:, 0] > 0}, definition, {"rows": 9, "h": 4}, "fresh", generator(1))
    assert torch.equal(found["mask"], found["x"][:, 0] > 0)
