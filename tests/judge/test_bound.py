"""The bound follows what a kernel's arithmetic can do: row by row, for long sums, masks and single elements."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_flashinfer.judge.compare import compare
from pytest_flashinfer.judge.evaluate import evaluate
from pytest_flashinfer.judge.truth import OutputSpec, OutputTruth

from . import kernels


def softmax_truth(x: torch.Tensor) -> dict[str, OutputTruth]:
    specs = {"p": OutputSpec("float32", tuple(x.shape)), "lse": OutputSpec("float32", (x.shape[0],))}
    return dict(evaluate(kernels.softmax, {"x": x}, specs).outputs)


def test_a_loud_row_changes_nothing_for_quiet_ones() -> None:
    x = torch.randn(64, 257, generator=torch.Generator().manual_seed(1))
    alone = softmax_truth(x)["p"].allowance
    x[::3] *= 2.0**21
    beside = softmax_truth(x)["p"].allowance
    quiet = torch.arange(64) % 3 != 0
    ratio = beside[quiet] / alone[quiet]
    assert float(ratio.min()) > 0.2
    assert float(ratio.max()) < 5


@pytest.mark.parametrize("value", [1.7, 0.0])
def test_a_long_sum_of_equal_terms_rounds_one_way(value: float) -> None:
    x = torch.full((2, 32000), value)
    truth = softmax_truth(x)
    lanes = torch.zeros(2, 8)
    for part in torch.exp(x - x.amax(-1, keepdim=True)).split(8, -1):
        lanes += part
    total = lanes.sum(-1, keepdim=True)
    p = torch.exp(x - x.amax(-1, keepdim=True)) / total
    assert compare(p, truth["p"]).ok, compare(p, truth["p"]).text
    assert not compare(p * (1 + 2.0**-10), truth["p"]).ok


def test_masked_logits_leave_the_bound_finite() -> None:
    x = torch.randn(4, 64).masked_fill(torch.rand(4, 64) < 0.3, -math.inf)
    x[2] = -math.inf
    x[0, 0] = 1.0
    truth = softmax_truth(x)
    known = torch.tensor([0, 1, 3])
    assert bool(truth["p"].allowance[known].isfinite().all())
    assert float(truth["p"].allowance[known].max()) < 1e-5
    lse = torch.logsumexp(x.double(), -1).float()
    assert compare(lse, truth["lse"]).ok
    assert not compare(lse.nan_to_num(neginf=-1e30), truth["lse"]).ok


def test_what_no_kernel_can_get_wrong_has_no_slack() -> None:
    x = torch.randn(8, 16).bfloat16()
    truth = evaluate(lambda x: x[:, ::2].contiguous(), {"x": x}, {"y": OutputSpec("bfloat16", (8, 8))}).outputs["y"]
    assert truth.exact
    other = x[:, ::2].contiguous()
    assert compare(other, truth).ok
    assert not compare(torch.nextafter(other, other + 1), truth).ok


def test_zero_rows_stay_zero() -> None:
    x, w = torch.zeros(2, 64).bfloat16(), torch.ones(64).bfloat16()
    truth = evaluate(kernels.rmsnorm, {"x": x, "w": w}, {"y": OutputSpec("bfloat16", (2, 64))}).outputs["y"]
    assert compare(torch.zeros(2, 64).bfloat16(), truth).ok
    assert not compare(torch.full((2, 64), 1e-30).bfloat16(), truth).ok
