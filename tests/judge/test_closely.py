"""The closer look at integers that rounding may decide, without which nobody is blamed."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth

ROWS, KEYS = 256, 48
SEEDS = range(12)


def best(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    scaled = keys.float() * scale[:, None]
    return (q.float() @ scaled.T).topk(4, dim=-1).indices.int()


def held(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    scaled = (keys.float() * scale[:, None]).bfloat16().float()
    return (q.float() @ scaled.T).topk(4, dim=-1).indices.int()


def unscaled(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (q.float() @ keys.float().T).topk(4, dim=-1).indices.int()


def inputs(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, keys = (torch.randn(n, 64, generator=generator).to(torch.float8_e4m3fn) for n in (ROWS, KEYS))
    return {"q": q, "keys": keys, "scale": 0.5 + torch.rand(KEYS, generator=generator)}


def truth(seed: int, *, closely: bool) -> Truth:
    return evaluate(best, inputs(seed), {"ids": OutputSpec("int32", (ROWS, 4))}, seed=seed, closely=closely)


def test_honest_kernels_are_never_blamed_and_wrong_ones_always() -> None:
    usual, closer = [], []
    for seed in SEEDS:
        given = inputs(seed)
        usual.append(compare(held(**given), truth(seed, closely=False).outputs["ids"]).ok)
        found = truth(seed, closely=True).outputs["ids"]
        closer.append(compare(held(**given), found).ok)
        assert not compare(unscaled(**given), found).ok
        assert not compare(held(**given).flip(1), found).ok
    assert not all(usual), "else there is nothing to see"
    assert all(closer)


def test_it_leaves_open_what_was_open_before_and_more() -> None:
    usual, closer = (truth(0, closely=closely).outputs["ids"].undecided for closely in (False, True))
    assert usual is not None
    assert closer is not None
    assert bool((closer | ~usual).all())
    assert int(usual.sum()) < int(closer.sum()) < closer.numel() // 2


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_floats_have_the_same_bounds(dtype: str) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.softmax(x, -1)
        return y, (y * 8).round().to(getattr(torch, dtype))

    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    specs = {"y": OutputSpec("float32", (16, 8)), "q": OutputSpec(dtype, (16, 8))}
    one, other = (evaluate(run, {"x": x}, specs, closely=closely).outputs["y"] for closely in (False, True))
    assert torch.equal(one.allowance, other.allowance)  # type: ignore[arg-type]
    assert one.widened == other.widened


def quantised(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return ((q.float() @ (keys.float() * scale[:, None]).T) / 4).round().to(torch.int8)


def quantised_held(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return ((q.float() @ (keys.float() * scale[:, None]).bfloat16().float().T) / 4).round().to(torch.int8)


def cut(q: torch.Tensor, keys: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return ((q.float() @ (keys.float() * scale[:, None]).T) / 4).trunc().to(torch.int8)


@pytest.mark.parametrize("seed", SEEDS)
def test_few_quantised_values_are_left_open(seed: int) -> None:
    """Runs as loud as for an order would leave nearly all of them open."""
    given, specs = inputs(seed), {"q": OutputSpec("int8", (ROWS, KEYS))}
    found = evaluate(quantised, given, specs, seed=seed, closely=True).outputs["q"]
    assert found.undecided is not None
    assert float(found.undecided.float().mean()) < 0.05
    assert compare(quantised_held(**given), found).ok
    assert not compare(cut(**given), found).ok
