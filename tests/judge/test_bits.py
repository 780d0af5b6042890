"""Bits of floats that a reference looks at: they are exact where no rounding has touched the floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable

N = 48
BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
BYTES = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = pytest.mark.parametrize("dtype", BITS, ids=name_of)


def given(dtype: torch.dtype, largest: float = 100.0) -> torch.Tensor:
    x = torch.randn(N, generator=torch.Generator().manual_seed(3))
    x[:3] = torch.tensor([0.0, -0.0, largest])
    return x.to(dtype)


def judge(
    function: Callable[..., Any], dtype: str, shape: tuple[int, ...] = (N,), **inputs: torch.Tensor
) -> OutputTruth:
    return evaluate(function, inputs, {"y": OutputSpec(dtype, shape)}).outputs["y"]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(BITS[x.dtype])


SHOWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda x: x,
    "same dtype": lambda x: x.view(x.dtype),
    "copied": lambda x: x.clone(),
    "cast and back": lambda x: x.double().to(x.dtype),
    "twice": lambda x: x * 2,
    "magnitudes": lambda x: x.abs(),
    "masked": lambda x: torch.where(x > 0, x, 0.0),
    "columns": lambda x: x.view(6, -1).t(),
}


@FLOATS
@pytest.mark.parametrize("name", SHOWN)
def test_bits_of_unrounded_values_are_those_that_the_reference_sees(name: str, dtype: torch.dtype) -> None:
    x = given(dtype, torch.inf)
    expected = bits(SHOWN[name](x))
    found = judge(lambda x: bits(SHOWN[name](x)), name_of(BITS[dtype]), tuple(expected.shape), x=x)
    assert found.how == "lifted"
    assert torch.equal(found.native, expected)
    assert found.undecided is None


@FLOATS
def test_floats_made_of_such_bits_are_exact(dtype: torch.dtype) -> None:
    x = given(dtype)
    found = judge(lambda x: (bits(x) & -4).view(x.dtype), name_of(dtype), x=x)
    expected = (bits(x) & -4).view(dtype)
    assert found.how == "lifted"
    assert compare(expected, found).ok
    off = expected.clone()
    off[5] = (bits(expected) + 4).view(dtype)[5]
    assert not compare(off, found).ok


def stochastic(x: torch.Tensor, r: torch.Tensor, mask: int = 0xFFFF, shift: int = 0) -> torch.Tensor:
    added = x.contiguous().view(torch.int32) + ((r >> shift) & mask)
    return (added & -65536).view(torch.float32).to(torch.bfloat16)


WRONG: dict[str, Callable[..., torch.Tensor]] = {
    "to nearest": lambda x, _: x.bfloat16(),
    "cut": lambda x, r: stochastic(x, r, 0),
    "high half": lambda x, r: stochastic(x, r, shift=16),
    "eight bits": lambda x, r: stochastic(x, r, 0xFF),
}


@pytest.mark.parametrize("name", WRONG)
def test_stochastic_rounding_by_other_bits_is_wrong(name: str) -> None:
    x = given(torch.float32)
    r = torch.randint(-(2**31), 2**31, (N,), generator=torch.Generator().manual_seed(8)).int()
    found = judge(stochastic, "bfloat16", x=x, r=r)
    assert compare(stochastic(x, r), found).ok
    assert not compare(WRONG[name](x, r), found).ok


@pytest.mark.parametrize("dtype", BYTES, ids=name_of)
def test_bytes_that_are_given_as_integers_are_as_exact_as_floats(dtype: torch.dtype) -> None:
    x = given(torch.float32)[3:].to(dtype)
    allowed = [
        judge(function, "float32", (N - 3,), x=each).allowance
        for function, each in ((lambda x: x.float() * 2, x), (lambda x: x.view(dtype).float() * 2, x.view(torch.uint8)))
    ]
    assert allowed[0] is not None
    assert allowed[1] is not None
    assert torch.equal(allowed[0], allowed[1])


@pytest.mark.parametrize("dtype", [*BYTES, torch.float8_e8m0fnu], ids=name_of)
def test_bytes_of_floats_are_those_that_are_given(dtype: torch.dtype) -> None:
    x = given(torch.float32)[3:].abs().to(dtype)
    found = judge(lambda x: x.view(torch.uint8).int() - 7, "int32", (N - 3,), x=x)
    assert found.how == "lifted"
    assert torch.equal(found.native, x.view(torch.uint8).int() - 7)


ROUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "product": lambda x: x * x,
    "exponential": lambda x: (x.float() / 3).exp().to(x.dtype),
    "not a number": lambda x: x - x,  # of an infinity
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=name_of)
@pytest.mark.parametrize("name", ROUNDED)
def test_bits_of_other_values_are_not_known(name: str, dtype: torch.dtype) -> None:
    found = judge(lambda x: bits(ROUNDED[name](x)).view(x.dtype), name_of(dtype), x=given(dtype, torch.inf))
    assert found.how == f"native: the bits of a {dtype} tensor are viewed as {BITS[dtype]}"


def into_bits(x: torch.Tensor) -> torch.Tensor:
    made = x.clone()
    made.view(torch.int32)[2:].bitwise_and_(-65536)
    return made


def into_floats(x: torch.Tensor) -> torch.Tensor:
    made = x.clone()
    seen = made.view(torch.int32)
    made *= 2
    return seen.view(torch.float32)


def into_view(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(N, dtype=torch.int32)
    made.view(torch.float32)[:] = x
    return made.view(torch.float32)


def into_integers(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(N, dtype=torch.int32)
    seen = made.view(torch.float32)
    made |= x.view(torch.int32)
    return seen


@pytest.mark.parametrize("function", [into_bits, into_floats, into_view, into_integers], ids=lambda each: each.__name__)
def test_what_is_written_into_one_of_both_is_judged_by_the_reference_as_it_is(function: Callable[..., Any]) -> None:
    x = given(torch.float32)
    found = judge(function, "float32", x=x)
    assert found.how.endswith("writes into a tensor whose bits are viewed as another dtype")
    assert torch.equal(found.native, function(x))
