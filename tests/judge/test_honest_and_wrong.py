"""The bound accepts what an honest author may do and rejects what loses precision, with default settings."""

from __future__ import annotations

import functools

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec

from . import cases, kernels

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@functools.cache
def cases_of(op: str, dtype: torch.dtype) -> list[cases.Case]:
    return cases.make(op, dtype)


def corpus(table: dict[str, dict[str, kernels.Kernel]], dtypes: tuple[torch.dtype, ...]) -> list[object]:
    return [
        pytest.param(op, kernel, dtype, id=f"{op}-{name}-{str(dtype).removeprefix('torch.')}")
        for op, variants in table.items()
        for name, kernel in variants.items()
        for dtype in dtypes
        if (op, name, dtype) not in kernels.INDISTINCT
    ]


@pytest.mark.parametrize(("op", "kernel", "dtype"), corpus(kernels.HONEST, (BF16, FP16, FP32)))
def test_honest_is_accepted(op: str, kernel: kernels.Kernel, dtype: torch.dtype) -> None:
    for case in cases_of(op, dtype):
        for comparison in case.judge(kernel):
            assert comparison.ok, comparison.text


@pytest.mark.parametrize(
    ("op", "kernel", "dtype"), corpus(kernels.WRONG, (BF16, FP16, FP32)) + corpus(kernels.STRICT_FP32, (FP32,))
)
def test_wrong_is_rejected(op: str, kernel: kernels.Kernel, dtype: torch.dtype) -> None:
    assert not all(comparison.ok for case in cases_of(op, dtype) for comparison in case.judge(kernel))


@pytest.mark.parametrize("op", ["gemm", "rmsnorm", "softmax", "attention"])
@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
def test_the_reference_never_widens_its_own_bound(op: str, dtype: torch.dtype) -> None:
    for case in cases_of(op, dtype):
        for output in case.truth.outputs.values():
            assert output.how == "lifted"
            assert output.widened < 1.2
            assert output.undecided is None


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("length", [4096, 14336])
@pytest.mark.parametrize("same_sign", [False, True])
def test_long_products_may_be_cut_on_the_way_and_nothing_else(
    dtype: torch.dtype, length: int, same_sign: bool  # noqa: FBT001
) -> None:
    """On an H100 the library's own product of 14336 in fp16 was above the bound: all of its cuts go one way."""
    g = torch.Generator().manual_seed(5)
    a, b = (torch.randn(128, length, generator=g).to(dtype) for _ in range(2))
    given = {"a": a.abs(), "b": b.abs()} if same_sign else {"a": a, "b": b}
    outputs = {"c": OutputSpec(name_of(dtype), (128, 128))}
    case = cases.Case(given, outputs, evaluate(kernels.gemm, given, outputs))
    cores = (kernels.gemm_tensor_core(16), kernels.gemm_tensor_core(8))
    for honest in (*cores, kernels.gemm_split, kernels.gemm_tiles(64)):
        (found,) = case.judge(honest)
        assert found.ok, found.text
    for wrong in (kernels.gemm_rounded_twice, kernels.gemm_tiles(64, accumulator=dtype), kernels.gemm_cut_result):
        assert not case.judge(wrong)[0].ok


def dequantised(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (x.float() @ (codes.float() * scales.float()).T).to(x.dtype)


def dequantised_with(held: torch.dtype) -> kernels.Kernel:
    def run(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return (x.float() @ (codes.float() * scales.float()).to(held).float().T).to(x.dtype)

    return run


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_equal_weights_are_rounded_alike_inside(dtype: torch.dtype) -> None:
    """Where what they are multiplied by is equal too, their errors add up in full."""
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(1, generator=generator).to(dtype).expand(2, 96).contiguous()
        codes, scales = (torch.rand(48, 3, generator=generator).repeat_interleave(32, 1) for _ in range(2))
        inputs = {"x": x, "codes": (15 * codes - 7).to(torch.int8), "scales": (0.02 * scales + 1e-3).to(dtype)}
        spec = {"y": OutputSpec(name_of(dtype), (2, 48))}
        truth = evaluate(dequantised, inputs, spec, seed=seed).outputs["y"]
        assert compare(dequantised_with(dtype)(*inputs.values()), truth).ok
        assert not compare(dequantised_with(torch.float8_e4m3fn)(*inputs.values()), truth).ok
