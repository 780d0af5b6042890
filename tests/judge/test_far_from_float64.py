"""Where the float64 run says nothing of an output, the reference's own values do: no value passes unseen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import FAR, OutputSpec, OutputTruth, inadmissible

if TYPE_CHECKING:
    from collections.abc import Callable

N = 6
SEES = torch.ones(N, N, dtype=torch.bool).tril(-1)  # the first query sees no key


def judge(run: Callable[..., Any], **inputs: torch.Tensor) -> OutputTruth:
    first = next(iter(inputs.values()))
    return evaluate(run, inputs, {"y": OutputSpec(name_of(first.dtype), tuple(first.shape))}).outputs["y"]


def attend(backend: SDPBackend, *, added: bool = False, **settings: Any) -> Callable[..., torch.Tensor]:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(N, N, dtype=q.dtype).masked_fill(~SEES, -math.inf) if added else SEES
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **settings)

    return run


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_that_sees_no_key_gets_zeros_as_from_torch(
    dtype: torch.dtype, backend: SDPBackend, *, added: bool
) -> None:
    g = torch.Generator().manual_seed(1)
    inputs = {name: torch.randn(1, 2, N, 8, generator=g).to(dtype) for name in "qkv"}
    run = attend(backend, added=added)
    truth = judge(run, **inputs)
    assert (truth.disputed, truth.undecided) == (0, None)
    right = run(**inputs)
    assert compare(right, truth).ok
    for wrong in (7.0, math.nan, -math.inf):
        assert not compare(right.index_fill(-2, torch.tensor([0]), wrong), truth).ok


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("scale", [0.0, 0.5, None])
def test_a_scale_is_what_was_given(scale: float | None, backend: SDPBackend) -> None:
    g = torch.Generator().manual_seed(1)
    inputs = {name: torch.randn(1, 2, N, 8, generator=g) for name in "qkv"}
    truth = judge(attend(backend, scale=scale), **inputs)
    assert truth.widened == 1.0


def longer(x: torch.Tensor) -> torch.Tensor:
    """Say where arithmetic has more bits than float32."""
    return torch.ones_like(x) + 2.0**-40 != 1


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x * 100 + torch.where(longer(x), 0.0, 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_that_only_the_reference_itself_has_are_judged_by_them(dtype: torch.dtype) -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)).to(dtype)

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        return torch.cat([torch.where(longer(y[:1]), math.nan, y[:1]), 3 * y[1:]]).to(x.dtype)

    truth = judge(run, x=x)
    right = run(x)
    assert truth.disputed == 16
    assert inadmissible(evaluate(run, {"x": x}, {"y": OutputSpec(name_of(dtype), (4, 16))})) is not None
    assert compare(right, truth).ok
    assert "16 elements are judged by the reference as it is, bound by dtype" in truth.notes
    for wrong in (7.0, math.nan, math.inf):
        assert not compare(right.index_fill(0, torch.tensor([0]), wrong), truth).ok
    assert not compare(right.index_fill(0, torch.tensor([1]), 0.0), truth).ok


def test_a_value_at_the_edge_of_overflow_may_be_either() -> None:
    x = torch.tensor([[65519.0, 1.0]])
    truth = evaluate(lambda x: (x + 0.996).half(), {"x": x}, {"y": OutputSpec("float16", (1, 2))}).outputs["y"]
    native = torch.tensor([[65504.0, 2.0]]).half()
    assert compare(native, truth).ok
    assert compare(native.index_fill(1, torch.tensor([0]), math.inf), truth).ok
    assert not compare(native.index_fill(1, torch.tensor([0]), -math.inf), truth).ok


def test_a_bound_is_widened_a_few_times_only() -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    truth = judge(shifted, x=x)
    assert truth.widened > FAR
    assert compare(shifted(x), truth).ok
    assert compare(x * 100 + 0.5 + 1e-5, truth).ok
    for wrong in (x * 100, x * 100 + 0.25, x * 100 + 0.5 + 1e-2):
        found = compare(wrong, truth)
        assert not found.ok
        assert "64 elements are judged by the reference as it is, bound by dtype" in found.text


def test_where_a_near_tie_may_decide_both_ways_are_right() -> None:
    def routed(x: torch.Tensor) -> torch.Tensor:
        scores = torch.stack([torch.ones_like(x[:, 0]) + 2.0**-40, torch.ones_like(x[:, 0])], dim=-1)
        expert = 1 - scores.argmax(dim=-1, keepdim=True)  # equal in float32, where the first is taken
        return x * (1 + expert) * torch.where(longer(x), 3.0, 1.0)

    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    truth = judge(routed, x=x)
    assert compare(routed(x), truth).ok
    assert truth.wide is not None
    assert compare(truth.wide.float(), truth).ok


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_a_reference_that_gives_a_shorter_dtype_than_is_declared_accepts_both_ways(short: torch.dtype) -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    truth = judge(lambda x: (x / 3).to(short), x=x)
    assert truth.widened == 1.0
    assert compare(x / 3, truth).ok
    assert compare((x / 3).to(short).float(), truth).ok
    assert not compare(x / 3 * 1.01, truth).ok


@torch.autocast("cpu", dtype=torch.bfloat16)
def a_linear_layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, w[0]).float() * 0.1


def a_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            y = x @ w
        return (x @ w).float() + y


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.scaled_dot_product_attention(x[None, None], w[None, None], w[None, None])[0, 0].float() * 0.1


@pytest.mark.parametrize("run", [a_linear_layer, a_product, attention])
def test_autocast_rounds_as_it_does_natively(run: Callable[..., torch.Tensor]) -> None:
    x, w = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    truth = judge(run, x=x, w=w)
    assert truth.widened < 1.5
    assert compare(run(x, w), truth).ok
    assert not compare(run(x, w) * 1.05, truth).ok


def softmax(x: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def softmax_by_columns(x: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(x - x.max(dim=-1).values[:, None])
    return weights / weights.sum(-1)[:, None]


@pytest.mark.parametrize("depth", [0.0, 3e4, 9e4])
@pytest.mark.parametrize("function", [softmax, softmax_by_columns])
def test_a_softmax_by_the_logarithm_of_its_sum_is_one(
    function: Callable[[torch.Tensor], torch.Tensor], depth: float
) -> None:
    """Far from 0 the logarithm is rounded to steps of a thousandth, and every weight of a row is off by as much."""
    for seed in range(8):
        x = 3 * torch.randn(5, 500, generator=torch.Generator().manual_seed(seed)) - depth
        x[:, 7] += 14
        found = evaluate(function, {"x": x}, {"y": OutputSpec("float32", (5, 500))}).outputs["y"]
        assert compare(torch.exp(x - torch.logsumexp(x, -1, keepdim=True)), found).ok
        assert not compare(torch.exp(x - torch.logsumexp(x, -1, keepdim=True) - depth * 1e-6 - 1e-4), found).ok


@pytest.mark.parametrize("weights", ["few large", "some larger"])
def test_a_weight_that_one_run_leaves_as_it_is_by_chance_may_be_off_as_others_are(weights: str) -> None:
    """Results of 16 bits without operands to round have one run only; the sum's logarithm is as far off as ever."""
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(13, 2000, generator=generator)
        if weights == "few large":  # beside others whose squares are 0 in float64
            x = (106 * x - 27520).clamp(max=-27160)
            x.scatter_(1, torch.rand(13, 2000, generator=generator).argsort(-1)[:, :3], -27120)
        else:  # some hundred weights are e^4 times the others
            x -= 5611.5
        x = x.half()
        found = evaluate(
            lambda x: torch.softmax(x.float(), -1).half(), {"x": x}, {"y": OutputSpec("float16", (13, 2000))}
        ).outputs["y"]
        exponents = x.float() - torch.logsumexp(x.float(), -1, keepdim=True)
        right = compare(torch.exp(exponents).half(), found)
        assert right.ok, right.text
        assert not compare(torch.exp(exponents + 0.03).half(), found).ok


@pytest.mark.parametrize(("depth", "half"), [(500, 2.0**-16), (1e5, 2.0**-8)])  # half a step there
@pytest.mark.parametrize("columns", [2_000, 60_000])
def test_the_logarithm_of_a_sum_may_round_either_way_for_any_weight_of_a_long_row(
    columns: int, depth: float, half: float
) -> None:
    """Few runs find, by chance, hardly an error of some weight among so many: it is as far off as all others are."""
    for seed in range(2):
        x = 8 * torch.randn(8, columns, generator=torch.Generator().manual_seed(seed)) - depth
        found = evaluate(softmax, {"x": x}, {"y": OutputSpec("float32", (8, columns))}).outputs["y"]
        exact = torch.logsumexp(x.double(), -1, keepdim=True)
        for rounding in (half, -half):
            assert compare(torch.exp(x - (exact + rounding)).float(), found).ok
            assert not compare(torch.exp(x - (exact + 32 * rounding)).float(), found).ok


def test_a_soft_cap_may_be_found_by_a_sigmoid() -> None:
    """2 * sigmoid(2 * x) - 1 is tanh(x) to a rounding of 1, and not of what is left."""
    x = 0.2 * torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    found = evaluate(lambda x: 30 * torch.tanh(x / 30), {"x": x}, {"y": OutputSpec("float32", (4, 64))}).outputs["y"]
    assert compare(30 * (2 * torch.sigmoid(2 * x / 30) - 1), found).ok
    assert not compare(30 * torch.tanh(x / 30).bfloat16().float(), found).ok


@pytest.mark.parametrize("scale", [0.07216878364870322, 0.125])
def test_products_of_integers_may_be_scaled_before_they_are_added_up(scale: float) -> None:
    """Where hardly anything is left of such a sum, the roundings of its terms are."""
    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randint(-4, 5, (n, 576), generator=generator).float() for n in (64, 64))
    outputs = {"y": OutputSpec("float32", (64, 64))}
    found = evaluate(lambda q, k: q @ k.T * scale, {"q": q, "k": k}, outputs).outputs["y"]
    assert compare((q * scale) @ k.T, found).ok
    assert not compare(((q * scale).bfloat16().float() * 1.001) @ k.T, found).ok
    assert found.exact is (scale == 0.125), "a shift leaves nothing to round"
