"""Outputs of integers: exact, unless limits are stated for them by name; the largest difference is the one shown."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.dtypes import DTYPES
from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison import applicable_settings, measure
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.vacuity import probe
from pytest_flashinfer.judge.oracle import integers
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth
from pytest_flashinfer.judge.tolerance import Tolerance, layered, parse

if TYPE_CHECKING:
    from collections.abc import Callable

RANGES = {name: (torch.iinfo(getattr(torch, name)).min, torch.iinfo(getattr(torch, name)).max) for name in (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)}  # fmt: skip


def truth_of(values: list[int], dtype: str = "int8", name: str = "q") -> OutputTruth:
    return OutputTruth(name, dtype, tensor_of(values, dtype))


def tensor_of(values: list[int], dtype: str) -> torch.Tensor:
    return torch.tensor(values, dtype=getattr(torch, dtype))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    """Draw a dtype with values and others, often near the first ones and near the ends of the range."""
    dtype = draw(st.sampled_from(sorted(RANGES)))
    low, high = RANGES[dtype]
    value = st.one_of(st.integers(low, high), st.sampled_from([low, low + 1, high - 1, high]))
    size = draw(st.integers(1, 6))
    expected = draw(st.lists(value, min_size=size, max_size=size))
    near = st.integers(-5, 5)
    actual = [draw(st.one_of(value, near.map(lambda d, x=x: min(high, max(low, x + d))))) for x in expected]
    return dtype, actual, expected


@settings(deadline=None, max_examples=300)
@given(pairs(), st.integers(0, 300) | st.sampled_from([2**31, 2**53, 2**63, 2**64]), st.sampled_from([0, 0.5]))
@example(("int64", [-(2**63), -(2**63)], [0, 1]), 2**63, 0)
@example(("uint64", [2**64 - 1, 2**63 + 1], [0, 0]), 2**64, 0)
def test_limits_are_those_of_whole_numbers(case: tuple[str, list[int], list[int]], atol: int, rtol: float) -> None:
    dtype, actual, expected = case
    found = compare(
        tensor_of(actual, dtype),
        truth_of(expected, dtype),
        Tolerance(outputs={"q": Tolerance(atol=float(atol), rtol=rtol)}),
    )
    apart = [abs(a - e) for a, e in zip(actual, expected, strict=True)]
    if rtol == 0 or max(map(abs, expected)) < 2**52:  # a limit is a float: relative ones of larger values are rounded
        misses = [d > atol + Fraction(rtol) * abs(e) for d, e in zip(apart, expected, strict=True)]
        assert (found.ok, found.n_bad) == (not any(misses), sum(misses))
        if any(misses):
            worst = max(d for d, missed in zip(apart, misses, strict=True) if missed)
            at = next(i for i, missed in enumerate(misses) if missed and apart[i] == worst)
            assert (found.worst, found.actual, found.expected) == ((at,), actual[at], expected[at])
    assert found.max_abs == pytest.approx(max(apart))


@settings(deadline=None, max_examples=100)
@given(pairs(), st.integers(1, 4))
def test_the_largest_difference_is_shown_the_first_of_equals(
    case: tuple[str, list[int], list[int]], chunk: int
) -> None:
    dtype, actual, expected = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "CACHED", chunk)
        found = compare(tensor_of(actual, dtype), truth_of(expected, dtype))
    apart = [abs(a - e) for a, e in zip(actual, expected, strict=True)]
    assert found.ok is (max(apart) == 0)
    if not found.ok:
        at = apart.index(max(apart))
        assert (found.worst, found.actual, found.expected) == ((at,), actual[at], expected[at])
        assert found.summary == f"q[{at}]: {actual[at]} instead of {expected[at]}"


def test_the_message_of_an_exact_integer() -> None:
    found = compare(tensor_of([1, 2, -120, 4], "int8"), truth_of([0, 2, 120, 4]))
    assert found.text.splitlines() == [
        "q[2]: -120 instead of 120",
        "2 of 4 elements miss (50 %); largest error 240 absolute, 2 relative",
        "all misses in elements 0, 2 of 4",
        "bound: exact",
    ]


def test_the_message_of_stated_limits() -> None:
    found = compare(tensor_of([1, 9], "int8"), truth_of([0, 4]), parse("q:atol=2"))
    assert found.text.splitlines()[:2] == [
        "q[1]: 9 instead of 4 (error 5, 2.5 times the bound 2)",
        "1 of 2 elements miss (50 %); largest error 5 absolute, 1.25 relative",
    ]
    assert found.text.splitlines()[-1] == "bound: rtol=0 atol=2 (set explicitly)"
    right = compare(tensor_of([1, 5], "int8"), truth_of([0, 4]), parse("q:atol=2"))
    assert (right.ok, right.share, right.summary) == (True, 0.5, "q: ok, 50% of the bound spent")


def test_limits_for_all_outputs_leave_integers_exact_and_the_message_says_so() -> None:
    found = compare(tensor_of([1000], "int32"), truth_of([1001], "int32", "ids"), parse("atol=2 rtol=1e-2"))
    assert not found.ok
    advice = "limits for all outputs leave integers exact, ids:atol=1 does not"
    assert found.text.splitlines()[-1] == f"bound: exact ({advice})"


@pytest.mark.parametrize(
    ("words", "ok"),
    [
        ("q:atol=1", False),
        ("q:atol=3", True),
        ("q:comparison=values q:atol=3", True),
        ("q:comparison=exact q:atol=3", False),
        ("q:required_matched_ratio=0.75", True),
        ("q:required_matched_ratio=0.75 q:max_error_cap=3", True),
        ("q:required_matched_ratio=0.75 q:max_error_cap=2", False),
        ("q:atol=1 q:required_matched_ratio=0.75", True),
        ("q:atol=3 q:max_error_cap=2", False),
        ("q:cosine=0.1 q:scale=1000", False),
        ("cosine=0.1 required_matched_ratio=0.1", False),
    ],
)
def test_settings_of_integers(words: str, ok: bool) -> None:  # noqa: FBT001 - a parameter
    found = compare(tensor_of([0, 10, 20, 33], "uint8"), truth_of([0, 10, 20, 30], "uint8"), parse(words))
    assert found.ok is ok
    assert ("max_error_cap 2" in found.summary) is ("cap=2" in words)


def test_bools_and_packed_floats_have_no_limits() -> None:
    mask = OutputTruth("m", "bool", torch.tensor([True, False]))
    found = compare(torch.tensor([False, True]), mask, parse("m:atol=1 m:rtol=1"))
    assert found.text.splitlines()[:2] == ["m[0]: False instead of True", "2 of 2 elements miss (100 %)"]
    packed = OutputTruth("w", "float4_e2m1", torch.tensor([[0x21]], dtype=torch.uint8))
    assert not compare(torch.tensor([[0x22]], dtype=torch.uint8), packed, parse("w:atol=6")).ok
    ints = OutputTruth("w", "int4", torch.tensor([[0x21]], dtype=torch.uint8))
    assert compare(torch.tensor([[0x30]], dtype=torch.uint8), ints, parse("w:atol=1")).ok
    assert not compare(torch.tensor([[0x31]], dtype=torch.uint8), ints, parse("w:atol=0")).ok


def test_undecided_elements_spend_nothing() -> None:
    truth = OutputTruth("q", "int8", tensor_of([0, 9], "int8"), undecided=torch.tensor([False, True]))
    found = compare(tensor_of([1, 99], "int8"), truth, parse("q:atol=2"))
    assert (found.ok, found.share, found.max_abs) == (True, 0.5, 1.0)


def test_floats_of_which_the_bits_count_show_the_largest_difference_as_well() -> None:
    truth = OutputTruth("y", "float32", torch.tensor([1.0, 2.0, 3.0, math.nan]))
    wrong = compare(torch.tensor([1.5, 2.0, 5.0, math.nan]), truth, parse("comparison=exact"))
    assert (wrong.summary, wrong.n_bad) == ("y[2]: 5 instead of 3", 2)
    lost = compare(torch.tensor([1.5, math.nan, 5.0, math.nan]), truth, parse("comparison=exact"))
    assert lost.summary == "y[1]: nan instead of 2"


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in ("string", "unknown", "dtype", "device")])
def test_kinds_of_dtypes(dtype: str) -> None:
    assert applicable_settings.is_real(dtype) is floats.is_float(dtype)
    assert applicable_settings.is_integer(dtype) is (dtype in RANGES or dtype == "int4")


@pytest.mark.parametrize(
    ("words", "settings_given"),
    [("rtol=1", ["rtol"]), ("atol=1 cosine=0", ["atol", "cosine"]), ("rtol=0 atol=0", ["rtol", "atol"]), ("", [])],
)
def test_the_half_of_a_pair_that_nobody_gave_is_not_told_of(words: str, settings_given: list[str]) -> None:
    assert applicable_settings.given(layered(parse(words))) == settings_given


class TestVacuity:
    def refused(self, values: list[int], words: str, dtype: str = "int8", **more: object) -> list[str]:
        truth = Truth({"q": truth_of(values, dtype)})
        return [each.reason for each in probe(truth, parse(words), **more) if each.refused]  # type: ignore[arg-type]

    def test_zeros(self) -> None:
        (reason, *_) = self.refused([3, -90, 120], "q:atol=300")
        told = "with rtol 0, atol 300 zeros would pass, max|reference| is 120; tighten it"
        assert reason == f"the tolerance of q proves nothing: {told}"
        assert self.refused([3, -90, 120], "q:atol=1") == []
        assert self.refused([3, -90, 120], "atol=300") == []

    def test_a_constant(self) -> None:
        assert "the mean everywhere would pass" in self.refused([100, 110, 120], "q:atol=10", "uint8")[0]
        assert self.refused([100, 110, 120], "q:atol=9", "uint8") == []
        assert self.refused([2**64 - 9, 2**64 - 1], "q:atol=1", "uint64") == []

    def test_a_copy_and_the_previous_answer(self) -> None:
        x = tensor_of([100, -100, 50], "int8")
        assert "a copy of the input x" in self.refused([101, -100, 50], "q:atol=1", inputs={"x": x})[0]
        assert "the previous answer" in self.refused([101, -100, 50], "q:atol=1", previous={"q": x})[0]
        assert self.refused([101, -100, 50], "", inputs={"x": x}, previous={"q": x}) == []

    def test_a_share_that_lets_a_constant_pass(self) -> None:
        truth = Truth({"m": OutputTruth("m", "bool", torch.arange(10) > 0)})
        (found,) = [each for each in probe(truth, parse("m:required_matched_ratio=0.9")) if each.refused]
        assert "required_matched_ratio 0.9 the mean everywhere would pass" in found.reason


def quantised(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x / 3 * 3).to(torch.int32)


def counted(x: torch.Tensor) -> torch.Tensor:
    return (x.view(8, 8) * 3 >= (x + x + x).view(8, 8)).sum(-1)


def near() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.round(20 * torch.randn(64, generator=generator)) + 0.5 + 1e-7 * torch.randn(64, generator=generator)


@pytest.mark.parametrize(("function", "dtype", "shape"), [(quantised, "int32", (64,)), (counted, "int64", (8,))])
def test_what_rounding_decides_is_one_of_what_it_may_make_of_it(
    function: Callable[[torch.Tensor], torch.Tensor], dtype: str, shape: tuple[int, ...]
) -> None:
    x = near()
    found = evaluate(function, {"x": x}, {"y": OutputSpec(dtype, shape)}).outputs["y"]
    assert found.undecided is not None
    assert found.native is not None
    open_ones = found.undecided
    assert bool(open_ones.any())
    other = function(x.double().mul(1 + 2.0**-24).float()).to(found.native.dtype)
    assert compare(torch.where(open_ones, other, found.native), found).ok
    for wrong in (torch.full_like(found.native, 107), found.native + 100, -1 - found.native.abs()):
        assert not compare(torch.where(open_ones, wrong, found.native), found).ok


@given(pairs())
def test_distances_are_those_of_whole_numbers_up_to_a_byte(case: tuple[str, list[int], list[int]]) -> None:
    dtype, actual, expected = case
    one, two = tensor_of(actual, dtype), tensor_of(expected, dtype)
    assert integers.countable(one.dtype, dtype) is not (dtype in {"uint16", "uint32", "uint64"})
    if integers.countable(one.dtype, dtype):
        found = integers.apart(one, two).tolist()
        assert found == [min(abs(a - b), integers.ANY) for a, b in zip(actual, expected, strict=True)]


@given(st.integers(0, 255))
def test_as_far_again_by_half_is_allowed(far: int) -> None:
    limit = integers.allowed(torch.tensor([far], dtype=torch.uint8))
    assert int(limit) == min(far + far // 2, integers.ANY)
    beyond = integers.beyond(torch.tensor([far, far + far // 2, far + far // 2 + 1, -5]), limit)
    assert beyond.tolist() == [False, False, *[int(limit) < integers.ANY] * 2]
