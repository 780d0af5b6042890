"""The bound accepts what an honest author may do and rejects what loses precision, with default settings."""

from __future__ import annotations

import functools

import pytest
import torch

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
