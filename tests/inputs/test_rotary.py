"""Tables of cosines and sines are such tables whatever is drawn, and not the same ones each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.floats.ranges import FILLS
from pytest_flashinfer.inputs.floats.values import Source, Want, float_tensor
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.variant import KINDS, ONE, variant
from tests.inputs.contracts import ROPE, axes, define, tensor

SIZES = {"num_tokens": 4, "max_position": 9}


def pair(shape: str):
    inputs = {"x": tensor("n d"), "cos": tensor(shape), "sin": tensor(shape)}
    return define("pair", axes(n=None, one=1, d=8), inputs, {"y": tensor("n d")}, "")


def table(seed: int, definition=ROPE) -> torch.Tensor:
    return make_inputs(definition, SIZES, Recipe(seed))["cos_sin_cache"]


def usual() -> torch.Tensor:
    angles = torch.arange(9.0)[:, None] * 10000.0 ** -(torch.arange(4) / 4)
    return torch.cat([angles.cos(), angles.sin()], 1)


def is_table(cos: torch.Tensor, sin: torch.Tensor) -> bool:
    """Whether each row is of cosines and sines, maybe times a factor."""
    squares = cos**2 + sin**2
    return torch.allclose(squares, squares[..., :1], atol=1e-5) and bool(((squares > 0.48) & (squares < 1.97)).all())


def test_frequencies_vary_and_the_usual_ones_are_among_them():
    same = [torch.allclose(table(seed), usual(), atol=1e-6) for seed in range(40)]
    assert 3 < sum(same) < 20
    assert len({table(seed)[1, 1].item() for seed in range(40)}) > 20


def test_position_zero_rotates_nothing_and_yet_may_scale():
    rows = [table(seed)[0] for seed in range(20)]
    assert all(torch.equal(row[4:], torch.zeros(4)) for row in rows)
    unscaled = [torch.equal(row[:4], torch.ones(4)) for row in rows]
    assert 3 < sum(unscaled) < 17


@given(st.integers(0, 1 << 31), st.sampled_from(KINDS))
def test_other_contents_have_another_table(seed, kind):
    before = make_inputs(ROPE, SIZES, Recipe(seed))
    after = variant(before, ROPE, SIZES, kind, torch.Generator().manual_seed(seed))["cos_sin_cache"]
    assert is_table(*after.chunk(2, -1))
    if kind == "same_ends":
        assert torch.equal(after[[0, 4, 8]], before["cos_sin_cache"][[0, 4, 8]])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != ONE])
def test_tables_of_repeated_calls_differ(kind):
    before = make_inputs(ROPE, SIZES, Recipe(1))
    made = [variant(before, ROPE, SIZES, kind, torch.Generator().manual_seed(n))["cos_sin_cache"] for n in range(8)]
    assert sum(not torch.equal(other, before["cos_sin_cache"]) for other in made) > 4


@pytest.mark.parametrize("kind", [None, *KINDS])
@pytest.mark.parametrize("shape", ["n d", "n one d", "one n d", "d"])
def test_cosines_and_sines_are_of_one_table(shape, kind):
    definition = pair(shape)
    made = make_inputs(definition, {"n": 6}, Recipe(3))
    if kind:
        made = variant(made, definition, {"n": 6}, kind, torch.Generator().manual_seed(1))
    assert is_table(made["cos"], made["sin"])
    assert (made["sin"].view(-1, 8)[-1] != 0).all()
    assert torch.equal(made["cos"][..., :4], made["cos"][..., 4:])


@pytest.mark.parametrize(
    ("words", "base"),
    [
        ("Cosines, then sines, with rope_theta = 500000.", 5e5),
        ("Frequencies have base 10,000.", 1e4),
        ("cos(p / 10000^(2i/d))", 1e4),
        ("theta: 1e6", 1e6),
        ("lse is of base 2", None),
        ("Row p holds 64 cosines of position p.", None),
    ],
)
def test_a_base_that_the_contract_tells_is_kept(words, base):
    spec = replace(ROPE.inputs["cos_sin_cache"], description=words)
    told = replace(ROPE, inputs={**ROPE.inputs, "cos_sin_cache": spec})
    assert plan_of(contract_of(told)).roles["cos_sin_cache"].base == base
    if base:
        assert torch.equal(table(1, told), table(2, told))


@pytest.mark.parametrize("kind", [kind for kind in (*FILLS, "cos_sin", "weight", "data") if kind != "zeros"])
def test_every_role_but_scratch_depends_on_the_seed(kind):
    one, two = (float_tensor(Want("x", kind, (5, 6), torch.float32, 6), "normal", Source(seed, torch.device("cpu")))
                for seed in (0, 4))  # fmt: skip
    assert not torch.equal(one, two)


def test_positions_that_nothing_bounds_are_far_now_and_then():
    """A kernel may hold a table of the first thousands; few tokens at a far place cost nothing."""
    inputs = {"x": tensor("n h"), "positions": tensor("n", "int32")}
    code = "def run(x, positions):\n    return x * torch.cos(positions.float())[:, None]\n"
    far = []
    for rules in ((), ("bool((positions < 600).all())",)):
        definition = define("turned", axes(n=None, h=8), inputs, {"y": tensor("n h")}, code, *rules)
        drawn = [make_inputs(definition, {"n": 5}, Recipe(seed))["positions"] for seed in range(60)]
        assert all(int(each.min()) >= 0 for each in drawn)
        far.append(sum(int(each.max()) > 4096 for each in drawn))
    assert 2 <= far[0] <= 25
    assert far[1] == 0
