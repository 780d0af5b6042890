"""What descriptions say of values in plain words is kept: segments with something in them, no id 0, powers of two."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import axes, define, tensor

NOTHING = "def run(**inputs):\n    return None\n"


def drawn(definition, name):
    """One input in each case that is tried first."""
    cases = edge_cases(definition, max_elements=1 << 12, limit=60)
    return [make_inputs(definition, sizes, recipe)[name] for sizes, recipe in cases]


@pytest.mark.parametrize(
    ("words", "empty"),
    [("Offsets of the samples. Each sample has tokens.", False), ("Row pointers; no row is without blocks.", False),
     ("Every request brings at least one token.", False), ("Segments are never empty.", False),
     ("Offsets of the samples.", True), ("Segments may be empty.", True), ("Where each sample starts.", True)],
)  # fmt: skip
def test_no_segment_is_empty_where_words_say_so(words, empty):
    inputs = {"x": tensor("total h"), "indptr": tensor("n1", "int32", description=words)}
    rules = ("n1 == n + 1", "indptr[-1].item() == total")
    ragged = define("ragged", axes(n=None, n1=None, total=None, h=4), inputs, {"y": tensor("n h")}, NOTHING, *rules)
    steps = [each.diff() for each in drawn(ragged, "indptr") if each.numel() > 1 and int(each[-1]) >= len(each) - 1]
    assert len(steps) > 5
    assert any(bool((each == 0).any()) for each in steps) is empty


@pytest.mark.parametrize(
    ("words", "least"),
    [("State slot of each request. Slot 0 is the null slot and belongs to nobody.", 1), ("The dummy slot is 0.", 1),
     ("State slot; slot 0 is never used.", 1), ("State slot of each request.", 0),
     ("Slot 0 is the first one.", 0)],
)  # fmt: skip
def test_id_0_is_nobodys_where_words_say_so(words, least):
    inputs = {"x": tensor("n h"), "pool": tensor("slots h"), "slot_ids": tensor("n", "int64", description=words)}
    rules = ("slots > n", "slot_ids.unique().numel() == n")
    pool = define("pool", axes(n=None, slots=None, h=4), inputs, {"y": tensor("n h")}, NOTHING, *rules)
    found = torch.cat(drawn(pool, "slot_ids"))
    assert int(found.min()) == least


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("own", [True, False])
def test_scales_are_powers_of_two_where_words_say_so(dtype, own):
    words = "Both scales are exact powers of two (UE8M0)."
    inputs = {"x": tensor("n h"), "x_scale": tensor("n g", dtype, description=words if own else None)}
    text = None if own else words
    scaled = define("scaled", axes(n=None, g=2, h=8), inputs, {"y": tensor("n h")}, NOTHING, description=text)
    for scale in drawn(scaled, "x_scale"):
        assert bool((torch.frexp(scale.float()).mantissa == 0.5).all())
    assert not bool((torch.frexp(torch.cat(drawn(scaled, "x")).float()).mantissa == 0.5).all())


def test_numbers_are_of_the_set_that_a_constraint_names():
    inputs = {"x": tensor("n h"), "ranks": tensor("n", "int32")}
    rule = "set(ranks.tolist()) <= {4, 8, 16}"
    ranked = define("ranked", axes(n=None, h=16), inputs, {"y": tensor("n h")}, NOTHING, rule)
    assert set(torch.cat(drawn(ranked, "ranks")).tolist()) == {4, 8, 16}
    assert make_inputs(ranked, {"n": 3}, Recipe(0))["ranks"].dtype is torch.int32
