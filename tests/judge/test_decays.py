"""Recurrences whose states decay: kernels that work in chunks add up exponents, and are as far off as the sums get."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

STEPS, HEADS, SIZE = 48, 4, 16


def scan(x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """One step after the other."""
    step = functional.softplus(dt)
    decay = torch.exp(step * a)
    state = torch.zeros(HEADS, SIZE)
    for t in range(STEPS):
        state = decay[t][:, None] * state + step[t][:, None] * x[t]
    return state


def at_once(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, held: torch.dtype = torch.float32, lost: float = 0.0
) -> torch.Tensor:
    """All steps as one chunk; weights are `held` in a dtype, or `lost` in part."""
    step = torch.log(1 + torch.exp(dt))
    sums = torch.cumsum(step * a, dim=0)
    whole = (step * a).sum(dim=0)  # not in the order of the other sums
    weights = (torch.exp(whole - sums) * step).to(held).float() * (1 - lost)
    return torch.einsum("th,thn->hn", weights, x)


def inputs(seed: int, size: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(STEPS, HEADS, SIZE, generator=generator)
    dt, a = torch.randn(STEPS, HEADS, generator=generator), -size * torch.rand(HEADS, generator=generator)
    return {"x": x, "dt": dt, "a": a}


def truth_of(given: dict[str, torch.Tensor]) -> OutputTruth:
    return evaluate(scan, given, {"state": OutputSpec("float32", (HEADS, SIZE))}).outputs["state"]


@pytest.mark.parametrize("size", [0.3, 3.0, 12.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_chunk_is_right_and_coarse_weights_are_wrong(seed: int, size: float) -> None:
    given = inputs(seed, size)
    truth = truth_of(given)
    assert compare(at_once(**given), truth).ok
    assert not compare(at_once(**given, held=torch.bfloat16), truth).ok
    assert not compare(at_once(**given, held=torch.float16), truth).ok
    assert not compare(at_once(**given, lost=1e-3), truth).ok


def test_the_terms_of_a_softmax_are_no_decays() -> None:
    """Differences, also where they are scaled afterwards, and what adds up to one."""
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(3))

    def differences(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x - x.amax(dim=-1, keepdim=True))

    def shares(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.log_softmax(x, dim=-1))

    def merged(x: torch.Tensor) -> torch.Tensor:
        one, other = x, x.flip(0)
        top = torch.maximum(one, other)
        return torch.exp(one - top) + torch.exp((other - top).reshape(8, 64))

    for function in (differences, shares, merged):
        truth = evaluate(function, {"x": x}, {"y": OutputSpec("float32", (8, 64))}).outputs["y"]
        assert truth.native is not None
        assert not compare(truth.native * (1 + 2.0**-15), truth).ok
