"""Operations with factors of their own: the factors count, in what is exact and in how far kernels may be off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable

N = 16
FACTORS = ((1000.0, 1), (0.125, 0), (-3.0, 0.3), (0.1, 0.3), (0.0, 1))


def randn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def judge(run: Callable[..., Any], **inputs: torch.Tensor) -> OutputTruth:
    first = next(iter(inputs.values()))
    return evaluate(run, inputs, {"y": OutputSpec(name_of(first.dtype), tuple(first.shape))}).outputs["y"]


def written(name: str, **factors: float) -> Callable[..., torch.Tensor]:
    return lambda c, a, b: getattr(c.clone(), name)(a, b, **factors)


# by name: what is added to c [16, 16] (of which a vector is the first column), of a and b [16, 16]
ADDED: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "addmm": (torch.addmm, torch.mm),
    "addmm_": (lambda c, a, b, **k: c.clone().addmm_(a, b, **k), torch.mm),
    "addmm out": (lambda c, a, b, **k: torch.addmm(c, a, b, out=torch.empty_like(c), **k), torch.mm),
    "baddbmm": (lambda c, a, b, **k: torch.baddbmm(c[None], a[None], b[None], **k)[0], torch.mm),
    "addbmm": (
        lambda c, a, b, **k: torch.addbmm(c, a[None], b[None], **k),
        lambda a, b: torch.bmm(a[None], b[None]).sum(0),
    ),
    "addmv": (lambda c, a, b, **k: torch.addmv(c[0], a, b[0], **k).expand_as(c), lambda a, b: (a @ b[0]).expand_as(a)),
    "addr": (lambda c, a, b, **k: torch.addr(c, a[0], b[0], **k), lambda a, b: torch.outer(a[0], b[0])),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("alpha", "beta"), FACTORS)
@pytest.mark.parametrize("name", ADDED)
def test_factors_of_a_product_count(name: str, alpha: float, beta: float, dtype: torch.dtype) -> None:
    fused, product = ADDED[name]

    def by_steps(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        inside = torch.float32 if product is torch.mm else dtype  # torch rounds to 16 bits in the others
        found = product(a.to(inside), b.to(inside)) * alpha
        first = c[:1].expand_as(c) if name == "addmv" else c
        return (found if beta == 0 else first.to(inside) * beta + found).to(c.dtype)

    inputs = {each: randn(N, N, seed=seed).to(dtype) for seed, each in enumerate("cab")}
    one = judge(lambda c, a, b: fused(c, a, b, beta=beta, alpha=alpha), **inputs)
    other = judge(by_steps, **inputs)
    torch.testing.assert_close(one.wide, other.wide, rtol=1e-12, atol=1e-12)
    assert one.widened < 2  # torch rounds 0.3 to bfloat16 in some
    assert one.allowance is not None
    assert 0.7 < float((one.allowance / other.allowance).median()) < 1.4
    assert compare(by_steps(**inputs), one).ok


def test_what_a_factor_of_zero_hides_is_not_looked_at() -> None:
    a, b = randn(N, N), randn(N, N, seed=2)
    nothing = torch.full((N, N), math.nan)
    one = judge(lambda a, b: torch.addmm(nothing, a, b, beta=0), a=a, b=b)
    other = judge(torch.mm, a=a, b=b)
    assert one.allowance is not None
    assert 0.8 < float((one.allowance / other.allowance).median()) < 1.25
    split = a[:, :8] @ b[:8] + a[:, 8:] @ b[8:]
    assert compare(split, one).ok


def test_a_factor_decides_whether_sums_of_integers_are_exact() -> None:
    a, b = (torch.randint(-4, 5, (N, N), generator=torch.Generator().manual_seed(s)).float() for s in (1, 2))
    for alpha, exact in ((1, True), (2, True), (0.5, True), (0.1, False)):
        found = judge(lambda a, b, alpha=alpha: torch.addmm(torch.zeros(N, N), a, b, alpha=alpha), a=a, b=b)
        assert found.exact == exact
    assert compare((a * 0.1) @ b, found).ok


# by name: what x [16, 16] is left of where y is all but taken away, in one step and in several
CANCELLED: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "add": (lambda x, y: torch.add(x * 0.1, y, alpha=-0.1), lambda x, y: x * 0.1 - y * 0.1),
    "sub": (lambda x, y: torch.sub(x, y, alpha=1.1), lambda x, y: x - y * 1.1),
    "rsub": (lambda x, y: torch.rsub(y, x, alpha=1.1), lambda x, y: x - y * 1.1),
    "add_": (lambda x, y: x.clone().add_(y, alpha=-1.1), lambda x, y: x - y * 1.1),
    "out": (lambda x, y: torch.add(x, y, alpha=-1.1, out=torch.empty_like(x)), lambda x, y: x - y * 1.1),
    "of a number": (lambda x, y: torch.add(x - y, 2, alpha=0.1), lambda x, y: x - y + 0.2),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y / y, value=-1.1), lambda x, y: x - (y * 1.1) * (y / y)),
    "addcmul of one": (lambda x, y: torch.addcmul(-x * x, y, y), lambda x, y: -x * x + y * y),
    "addcmul_": (lambda x, y: x.clone().addcmul_(y, y / y, value=-1.1), lambda x, y: x - (y * 1.1) * (y / y)),
    "addcdiv": (lambda x, y: torch.addcdiv(x, y, y / y, value=-1.1), lambda x, y: x - (y * 1.1) / (y / y)),
    "index_add": (
        lambda x, y: x.index_add(0, torch.arange(N), y, alpha=-1.1),
        lambda x, y: x - y * 1.1,
    ),
}


@pytest.mark.parametrize("name", CANCELLED)
def test_a_product_inside_is_rounded_by_its_own_size(name: str) -> None:
    fused, by_steps = CANCELLED[name]
    y = randn(N, N)
    x = y * (1.1 if "1.1" in name else 1.0) * (1 + 1e-5 * randn(N, N, seed=2))
    if name in ("sub", "rsub", "add_", "out", "addcmul", "addcmul_", "addcdiv", "index_add"):
        x = x * 1.1
    found = judge(fused, x=x, y=y)
    assert found.widened == 1.0
    assert compare(by_steps(x, y), found).ok
    assert not compare(by_steps(x, y) + 1e-3, found).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_infinities_become_the_ends_of_the_dtype_that_was_meant(dtype: torch.dtype) -> None:
    x = randn(4, 8).to(dtype)
    x[0, :3] = torch.tensor([math.inf, -math.inf, math.nan])
    for run in (torch.nan_to_num, lambda x: x.clone().nan_to_num_(), lambda x: torch.nan_to_num(x, 2.0, posinf=5.0)):
        found = judge(run, x=x)
        right = run(x)
        assert (found.disputed, found.widened) == (0, 1.0)
        assert compare(right, found, equal_nan=True).ok
        for place in range(3):
            wrong = right.clone()
            wrong[0, place] = 7.0
            assert not compare(wrong, found, equal_nan=True).ok


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_a_scaled_product_of_eight_bits_is_a_product_and_its_scales(by_row: bool, biased: bool) -> None:  # noqa: FBT001
    def run(a: torch.Tensor, b: torch.Tensor, sa: torch.Tensor, sb: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        given = {"bias": bias} if biased else {}
        return torch._scaled_mm(a, b.T, scale_a=sa, scale_b=sb, out_dtype=torch.bfloat16, **given)

    g = torch.Generator().manual_seed(1)
    a, b = (torch.randn(size, 128, generator=g).to(torch.float8_e4m3fn) for size in (16, 64))
    sa, sb = (torch.rand(16, 1, generator=g), torch.rand(1, 64, generator=g)) if by_row else (torch.rand(()),) * 2
    bias = torch.randn(64, generator=g).bfloat16()
    inputs = {"a": a, "b": b, "sa": sa, "sb": sb, "bias": bias}
    found = evaluate(run, inputs, {"y": OutputSpec("bfloat16", (16, 64))}).outputs["y"]
    products = a.float() @ b.float().T
    shift = bias.float() * biased
    assert found.how == "lifted"
    assert compare((products * sb * sa + shift).bfloat16(), found).ok
    assert not compare(((products * sa).bfloat16().float() * sb + shift).bfloat16(), found).ok
