"""Weights that 16 bits hold exactly, as those of a power of two of equal keys: nothing may be lost by holding them."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, inadmissible

HEADS, DIM = 4, 64


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights by exponentials, as in references that give the sum's logarithm too."""
    logits = q.float() @ k.float().T / math.sqrt(DIM)
    lse = torch.logsumexp(logits, dim=-1)
    return (torch.exp(logits - lse[:, None]) @ v.float()).to(v.dtype), lse


def held(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.dtype) -> torch.Tensor:
    """Weights before they are divided by their sum in 16 bits, and what is added up so far in `kept`."""
    logits = q.float() @ k.float().T / math.sqrt(DIM)
    weights = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    total = torch.zeros(HEADS, DIM, dtype=kept)
    for start in range(0, len(k), 16):
        part = weights[:, start : start + 16].bfloat16().float() @ v[start : start + 16].float()
        total = (total.float() + part).to(kept)
    return (total.float() / weights.sum(dim=-1, keepdim=True)).to(v.dtype)


def inputs(keys: int, size: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(n, DIM, generator=generator).bfloat16() for n in (HEADS, keys, keys))
    return {"q": q * size, "k": k, "v": v}


def truth_of(given: dict[str, torch.Tensor]) -> OutputTruth:
    specs = {"output": OutputSpec("bfloat16", (HEADS, DIM)), "lse": OutputSpec("float32", (HEADS,))}
    return evaluate(attention, given, specs).outputs["output"]


@pytest.mark.parametrize("keys", [64, 128, 1024])
def test_a_sum_kept_in_16_bits_is_wrong_where_weights_are_exact(keys: int) -> None:
    given = inputs(keys, 0.0)
    truth = truth_of(given)
    assert compare(held(**given, kept=torch.float32), truth).ok
    for kept in (torch.float16, torch.bfloat16):
        assert not compare(held(**given, kept=kept), truth).ok


@pytest.mark.parametrize("size", [1.0, 4.0])
def test_weights_in_16_bits_are_right_where_they_are_not_exact(size: float) -> None:
    given = inputs(128, size)
    assert compare(held(**given, kept=torch.float32), truth_of(given)).ok


def test_rows_of_exact_weights_are_held_to_more_than_their_neighbours() -> None:
    given = inputs(128, 1.0)
    given["q"][0] = 0
    right = held(**given, kept=torch.float32)
    wrong = right.clone()
    wrong[0] = held(**given, kept=torch.bfloat16)[0]
    truth = truth_of(given)
    assert compare(right, truth).ok
    found = compare(wrong, truth)
    assert not found.ok
    assert found.worst is not None
    assert found.worst[0] == 0


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As kernels do it with one fused multiply-add: what the largest exponent was rounded by is not subtracted."""
    logits = q.double() @ k.double().T / math.sqrt(DIM)
    top = logits.amax(dim=-1, keepdim=True).float()
    weights = torch.exp(logits - top.double()).float()
    return ((weights @ v.float()) / weights.sum(dim=-1, keepdim=True)).to(v.dtype)


@pytest.mark.parametrize("size", [2.0**n for n in range(0, 24, 3)])
def test_no_kernel_is_asked_for_exponents_that_one_step_makes_infinite(size: float) -> None:
    given = inputs(96, 1.0)
    for x, row in zip(given.values(), (0, 5, 5), strict=True):
        x[row] *= size
    given["q"][0] *= torch.sign(given["q"][0].float() @ given["k"][5].float())
    specs = {"output": OutputSpec("bfloat16", (HEADS, DIM)), "lse": OutputSpec("float32", (HEADS,))}
    truth = evaluate(attention, given, specs)
    assert inadmissible(truth) is not None or compare(fused(**given), truth.outputs["output"]).ok
    assert size > 2**15 or inadmissible(truth) is None


@pytest.mark.parametrize("seed", range(6))
def test_keys_that_occur_many_times_are_rounded_alike(seed: int) -> None:
    """What their weights lose adds up: a few keys, repeated, make a sum of few terms and not of hundreds."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(q.float() @ k.float().T * 0.0884, -1) @ v.float()).bfloat16()

    generator = torch.Generator().manual_seed(seed)
    few = torch.randn(2, 12, 128, generator=generator).bfloat16()
    ids = torch.randint(0, 12, (400,), generator=generator)
    q, k, v = torch.randn(16, 128, generator=generator).bfloat16(), few[0][ids], few[1][ids]
    outputs = {"y": OutputSpec("bfloat16", (16, 128))}
    found = evaluate(run, {"q": q, "k": k, "v": v}, outputs, operands="working").outputs["y"]
    exponents = q.double() @ k.double().T * 0.0884
    weights = torch.exp(exponents - exponents.amax(-1, keepdim=True))
    kernel = (weights.bfloat16().double() @ v.double() / weights.sum(-1, keepdim=True)).bfloat16()
    assert compare(kernel, found).ok
    half = (weights.to(torch.float8_e4m3fn).double() @ v.double() / weights.sum(-1, keepdim=True)).bfloat16()
    assert not compare(half, found).ok
