"""Ids that a reference compares with others begin alike in some rows."""

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.compared_ids import pairs
from pytest_flashinfer.inputs.recipe import Recipe

from .contracts import axes, define, tensor

LOOP = """
def run(draft, target):
    lengths = torch.zeros(len(draft), dtype=torch.int32)
    for b in range(len(draft)):
        row = draft[b]
        k = 0
        while k < len(row) and int(row[k]) == int(target[b, k]):
            k += 1
        lengths[b] = k
    return lengths
"""
SIZES = {"n": 40, "width": 12, "wider": 13}


def verified(reference=LOOP, *constraints):
    inputs = {"draft": tensor("n width", "int32"), "target": tensor("n wider", "int32")}
    sizes = axes(n=None, width=None, wider=None)
    outputs = {"lengths": tensor("n", "int32")}
    return define("verified", sizes, inputs, outputs, reference, "wider == width + 1", *constraints)


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        (LOOP, (("draft", "target"),)),
        ("def run(draft, target):\n    return (draft != target[:, :-1]).sum(1)", (("draft", "target"),)),
        ("def run(draft, target):\n    return (draft < target[:, :-1]).sum(1)", ()),
        ("def run(draft, target):\n    return (draft == draft[:, :1]).sum(1)", ()),
        ("", ()),
    ],
)
def test_what_is_compared(reference, found):
    assert pairs(contract_of(verified(reference))) == found


def test_rows_begin_alike_to_any_length_in_every_other_draw():
    lengths = set()
    for seed in range(1, 9, 2):
        made = make_inputs(verified(), SIZES, Recipe(seed))
        same = made["draft"] == made["target"][:, :-1]
        lengths |= set(same.long().cumprod(1).sum(1).tolist())
    assert {0, 12} <= lengths
    assert len(lengths) > 8
    usual = make_inputs(verified(), SIZES, Recipe(2))
    assert (usual["draft"] == usual["target"][:, :-1]).float().mean() < 0.2


def test_unbounded_ids_that_differ_may_do_so_in_their_upper_bits_alone():
    made = make_inputs(verified(), SIZES, Recipe(1))
    apart = made["target"][:, :-1].long() - made["draft"].long()
    assert bool((apart == 1 << 16).any())
    bounded = verified(LOOP, "int(target.max()) < 100", "int(target.min()) >= 0")
    made = make_inputs(bounded, SIZES, Recipe(1))
    assert int(made["target"].max()) < 100


def test_ids_of_16_bits_and_rows_of_nothing():
    inputs = {"draft": tensor("n width", "int16"), "target": tensor("n wider", "int16")}
    short = define("short", axes(n=None, width=None, wider=None), inputs, {"y": tensor("n", "int32")}, LOOP)
    made = make_inputs(short, SIZES, Recipe(1))
    assert bool((made["draft"] == made["target"][:, :-1]).any())
    assert make_inputs(short, {**SIZES, "width": 0}, Recipe(1))["draft"].shape == torch.Size([40, 0])
