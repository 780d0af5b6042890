"""On a card: the library's own kernels are honest, TF32 is not float32, and the oracle is quick."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle import handler
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth

from . import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.gpu
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(autouse=True)
def _as_in_the_worker() -> None:
    handler.warm("cuda:0")


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(sum(shape))).to(dtype)


def truth_of(reference: Callable[..., Any], inputs: dict[str, Any], **outputs: torch.Tensor) -> Truth:
    specs = {name: OutputSpec(name_of(x.dtype), tuple(x.shape)) for name, x in outputs.items()}
    return evaluate(reference, inputs, specs)


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 128, 2048), (64, 256, 7168), (512, 512, 14336)])
def test_products_of_the_library(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    inputs = {"a": randn(m, k, dtype=dtype), "b": randn(n, k, dtype=dtype)}
    found = inputs["a"] @ inputs["b"].T
    for same_sign in (False, True):
        given = {name: x.abs() if same_sign else x for name, x in inputs.items()}
        truth = truth_of(kernels.gemm, given, c=found).outputs["c"]
        assert truth.widened == 1.0
        result = compare((given["b"] @ given["a"].T).T.contiguous(), truth)
        assert result.ok, result.text


def test_tf32_is_not_float32() -> None:
    inputs = {"a": randn(64, 1024, dtype=FP32), "b": randn(64, 1024, dtype=FP32)}
    truth = truth_of(kernels.gemm, inputs, c=inputs["a"][:, :64]).outputs["c"]
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        result = inputs["a"] @ inputs["b"].T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert not compare(result, truth).ok


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("length", [1, 100, 4096])
def test_attention_of_the_library(length: int, dtype: torch.dtype) -> None:
    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
        return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)

    q, k, v = (randn(1, 4, n, 128, dtype=dtype) for n in (min(length, 64), length, length))
    truth = truth_of(reference, {"q": q, "k": k, "v": v}, o=q).outputs["o"]
    result = compare(F.scaled_dot_product_attention(q, k, v), truth)
    assert result.ok, result.text


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
def test_normalisation_and_softmax_of_the_library(dtype: torch.dtype) -> None:
    x, w = randn(33, 4096, dtype=dtype), 1 + 0.1 * randn(4096, dtype=dtype)
    truth = truth_of(kernels.rmsnorm, {"x": x, "w": w}, y=x).outputs["y"]
    result = compare(F.rms_norm(x.float(), (4096,), w.float(), 1e-6).to(dtype), truth)
    assert result.ok, result.text
    truths = truth_of(kernels.softmax, {"x": x}, p=x, lse=x[:, 0].float()).outputs
    for kernel in (kernels.softmax, kernels.softmax_with(base2=True), kernels.softmax_online_on(x.device)):
        for value, truth in zip(kernel(x), truths.values(), strict=True):
            assert compare(value, truth).ok, compare(value, truth).text


def test_the_oracle_costs_little_for_small_tensors() -> None:
    x, w = randn(7, 128, dtype=BF16), randn(128, dtype=BF16)

    def once() -> float:
        start = time.perf_counter()
        truth = truth_of(kernels.rmsnorm, {"x": x, "w": w}, y=x).outputs["y"]
        assert compare(truth.native, truth).ok  # type: ignore[arg-type]
        return time.perf_counter() - start

    assert min(once() for _ in range(20)) < 0.01  # half of it on a fast host


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_the_hosts_truth_is_the_cards(dtype: torch.dtype) -> None:
    x, w = randn(5, 257, dtype=dtype), randn(257, dtype=dtype)
    products = {"a": x, "b": randn(3, 257, dtype=dtype)}
    for kernel, inputs in ((kernels.rmsnorm, {"x": x, "w": w}), (kernels.gemm, products)):
        y = kernel(*inputs.values())
        card = truth_of(kernel, inputs, y=y).outputs["y"]
        host = truth_of(kernel, {name: value.cpu() for name, value in inputs.items()}, y=y).outputs["y"]
        assert compare(y.cpu(), host).ok, compare(y.cpu(), host).text
        assert card.wide is not None
        assert host.wide is not None
        torch.testing.assert_close(host.wide, card.wide.cpu(), rtol=1e-6, atol=1e-6)
