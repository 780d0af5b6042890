"""The bound follows what a kernel's arithmetic can do: row by row, for long sums, masks and single elements."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle import bound
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, inadmissible

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


@pytest.mark.parametrize("spread", [0.0, 0.05])
@pytest.mark.parametrize("count", [200, 1000, 4000])
def test_what_is_added_one_by_one_to_a_large_term_rounds_one_way(count: int, spread: float) -> None:
    """Below half a step of the largest term all others are lost, above it all count as a whole step."""
    x = torch.randn(56, count, generator=torch.Generator().manual_seed(count)) * spread
    x[:, 0] = torch.linspace(13, 18.5, 56)
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    total = torch.zeros(56, 1)
    for part in weights.split(1, -1):
        total = total + part
    assert float((total / weights.double().sum(-1, keepdim=True) - 1).abs().max()) > count * 2.0**-26
    truth = softmax_truth(x)
    found = compare(weights / total, truth["p"])
    assert found.ok, found.text
    lse = (torch.log(total) + x.amax(-1, keepdim=True)).squeeze(-1)
    assert compare(lse, truth["lse"]).ok, compare(lse, truth["lse"]).text
    assert not compare(weights / (total + 1e-3), truth["p"]).ok


def test_equal_terms_that_come_last_round_by_the_steps_of_the_whole_sum() -> None:
    x = torch.randn(64, 2000, generator=torch.Generator().manual_seed(3))
    x[:, 1000:] = torch.linspace(-1, 1, 64)[:, None]
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    total = torch.zeros(64, 1)
    for part in weights.split(1, -1):
        total = total + part
    found = compare(weights / total, softmax_truth(x)["p"])
    assert found.ok, found.text


def test_squares_beside_a_large_one_round_one_way() -> None:
    x = torch.full((40, 1000), 1.0)
    x[:, 0] = 2.0 ** torch.linspace(10, 13, 40)
    total = torch.zeros(40, 1)
    for part in (x * x).split(1, -1):
        total = total + part
    outputs = {"y": OutputSpec("float32", (40, 1))}
    truth = evaluate(lambda x: (x * x).mean(-1, keepdim=True), {"x": x}, outputs).outputs["y"]
    assert compare(total / 1000, truth).ok, compare(total / 1000, truth).text
    assert not compare(total / 999, truth).ok


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


@given(
    squares=st.lists(st.sampled_from([0.0, 1e-20, 1.0, 1e76, 1e200, 4e200]), min_size=1, max_size=24),
    sizes=st.lists(st.sampled_from([0.0, 1e-30, 1.0, -2.5, 3e38]), min_size=1, max_size=24),
    columns=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "bfloat16", "float16", "float64"]),
)
def test_a_bound_is_never_nan(squares: list[float], sizes: list[float], columns: int, dtype: str) -> None:
    count = min(len(squares), len(sizes)) // columns * columns
    noise, wide = (torch.tensor(x[:count], dtype=torch.float64).reshape(-1, columns) for x in (squares, sizes))
    limit = bound.allowance(wide, noise, 4, dtype)
    assert not bool(limit.isnan().any())
    assert bool((limit >= 0).all())


def attention_to_one_key(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    logits = q.float() @ k.float().T
    return (torch.exp(logits - torch.logsumexp(logits, -1, keepdim=True)) @ v.float()).to(v.dtype)


def test_where_a_rounding_decides_everything_an_honest_kernel_is_not_accused() -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (size * torch.randn(1, 8, generator=generator) for size in (1e6, 1e6, -1.7e6))  # exponents of 10^12
    truth = evaluate(attention_to_one_key, {"q": q, "k": k, "v": v}, {"y": OutputSpec("float32", (1, 8))})
    found = compare(v.clone(), truth.outputs["y"])
    assert found.ok, found.text
    assert "off by more than its largest value" in str(inadmissible(truth))


def test_zeros_throughout_are_a_fair_test() -> None:
    x = torch.zeros(3, 5)
    truth = evaluate(lambda x: x.square() * 3, {"x": x}, {"y": OutputSpec("float32", (3, 5))})
    assert inadmissible(truth) is None


def plain_softmax(x: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("columns", [32000, 128256])
@pytest.mark.parametrize("values", [1, 2, 3, 5, 12])
def test_the_library_s_own_softmax_of_ties_is_honest(columns: int, values: int) -> None:
    generator = torch.Generator().manual_seed(columns + values)
    table = torch.randn(values, generator=generator)
    x = table[torch.randint(values, (3, columns), generator=generator)]
    x[2, ::10] = torch.randn(x[2, ::10].shape, generator=generator)  # nine in ten are equal, for one value
    p = torch.softmax(x, -1)
    plain = evaluate(plain_softmax, {"x": x}, {"p": OutputSpec("float32", (3, columns))})
    for truth in (softmax_truth(x)["p"], plain.outputs["p"]):
        found = compare(p, truth)
        assert found.ok, found.text
        assert not compare(p * (1 + 2.0**-9), truth).ok


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_where_runs_are_few_neighbours_stand_in_for_them(runs: int) -> None:
    """Of many elements some have hardly any noise in all runs by chance: few of them may be called wrong for that."""
    generator = torch.Generator().manual_seed(5)
    shape, noise = (20_000, 4), 1e-5

    def drawn() -> torch.Tensor:
        return noise * torch.randn(shape, generator=generator, dtype=torch.float64)

    squares = torch.stack([drawn().square() for _ in range(runs)]).mean(0)
    limit = bound.allowance(torch.full(shape, 8.0, dtype=torch.float64), squares, runs, "float32")
    assert int((drawn().abs() > limit).sum()) < 8e-4 * limit.numel() / (runs - 1)
    assert float(limit.median()) < 8 * noise


def _before(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros_like(x[:1]), x.cumsum(0)[:-1]])


def _from_here(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0).cumsum(0).flip(0)


@pytest.mark.parametrize(
    ("reference", "kernel", "right"),
    [
        (_before, lambda x: x.cumsum(0) - x, True),
        (_before, lambda x: _before(x.double()).float(), True),
        (_before, lambda x: _before(x.bfloat16().float()), False),
        (_before, lambda x: x.cumsum(0), False),
        (_from_here, lambda x: x.sum(0) - x.cumsum(0) + x, True),
        (_from_here, lambda x: x.sum(0) - x.cumsum(0), False),
    ],
    ids=["less its own", "float64", "bfloat16 terms", "inclusive", "whole less the rest", "exclusive"],
)
@given(rows=st.integers(2, 300), small=st.sampled_from([1.0, 1e-3]))
def test_a_running_sum_may_be_found_as_a_difference(reference, kernel, right, rows, small) -> None:
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
    x[0] *= small
    truth = evaluate(reference, {"x": x}, {"y": OutputSpec("float32", (rows, 8))}).outputs["y"]
    assert compare(kernel(x), truth).ok is right


def test_an_infinite_term_leaves_the_bound_of_a_running_sum_finite() -> None:
    x = torch.randn(9, 4)
    x[5:] = -math.inf
    truth = evaluate(lambda x: x.cumsum(0), {"x": x}, {"y": OutputSpec("float32", (9, 4))}).outputs["y"]
    assert compare(x.double().cumsum(0).float(), truth).ok
    assert 0 < float(truth.allowance[:5].max()) < 1e-4
