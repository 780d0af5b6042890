"""Spacing, overflow and codes of the formats, against torch's own arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison.vacuity import unalike
from pytest_flashinfer.judge.oracle.truth import OutputSpec
from pytest_flashinfer.judge.reference.call import Reference, storage

FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NARROW = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None, max_examples=50)
@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_spacing_is_the_gap_to_the_next_number(name: str, value: float) -> None:
    there = one(value).to(FORMATS[name])
    if not bool(there.isfinite().all()) or abs(there.item()) >= floats.largest(name):
        return
    gap = torch.nextafter(there, torch.full_like(there, math.inf).copysign(there)).double() - there.double()
    assert float(floats.spacing(there.double(), name)) == abs(float(gap))


@pytest.mark.parametrize("name", [*FORMATS, *NARROW])
@settings(deadline=None, max_examples=50)
@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_rounding_errs_by_half_a_spacing_at_most(name: str, value: float) -> None:
    there = one(value).to({**FORMATS, **NARROW}[name]).double()
    if abs(value) < floats.overflow_at(name) and abs(float(there)) <= floats.largest(name):
        assert abs(float(there) - value) <= float(floats.spacing(one(value), name)) / 2


@pytest.mark.parametrize("name", FORMATS)
def test_overflow_begins_half_a_spacing_above_the_largest(name: str) -> None:
    edge = floats.overflow_at(name)
    assert bool(one(edge).to(FORMATS[name]).isinf())
    assert bool(one(edge * (1 - 2.0**-20)).to(FORMATS[name]).isfinite())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16])
def test_codes_of_neighbours_differ_by_one(dtype: torch.dtype) -> None:
    bits = dtype.itemsize * 8
    raw = torch.arange(0, 1 << (bits - 1), dtype=torch.int32)
    values = raw.to(torch.uint8 if bits == 8 else torch.int16).view(dtype)
    finite = values[values.float().isfinite()]
    both = torch.cat([-finite.float().flip(0), finite.float()]).to(dtype)
    steps = floats.code_order(both).diff()
    assert set(steps.tolist()) == {0, 1}  # 0 between the two zeros
    assert int((steps == 0).sum()) == 1


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=8))
def test_packed_codes_unpack_low_nibble_first(codes: list[int]) -> None:
    packed = torch.tensor(codes, dtype=torch.uint8)
    ints = floats.unpack(packed, "int4").tolist()
    assert ints == [n - 16 if n >= 8 else n for code in codes for n in (code & 15, code >> 4)]
    reals = floats.unpack(packed, "float4_e2m1")
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert reals.tolist() == [math.copysign(table[n & 7], 7.5 - n) for code in codes for n in (code & 15, code >> 4)]


def test_representable() -> None:
    assert floats.representable(torch.tensor([1.0, 0.5, math.nan, math.inf]).double(), torch.bfloat16)
    assert not floats.representable(torch.tensor([1.001]).double(), torch.bfloat16)


def test_scales_without_a_sign_are_as_far_apart_as_their_exponents() -> None:
    scales = torch.tensor([2.0**-3, 0.5, 1.0, 2.0, 64.0]).to(torch.float8_e8m0fnu)
    assert floats.code_order(scales).diff().tolist() == [2, 1, 1, 5]


@pytest.mark.parametrize(
    ("dtype", "shape", "stored"),
    [("float4_e2m1", (3, 8), (3, 4)), ("int4", (8,), (4,)), ("float4_e2m1fn_x2", (3, 8), (3, 8)),
     ("float4_e2m1fn_x2", (3,), (3,)), ("float4_e2m1fn_x2", (), ())],
)  # fmt: skip
def test_shapes_of_pairs_count_pairs(dtype, shape, stored) -> None:
    codes = torch.arange(math.prod(stored), dtype=torch.uint8).view(stored)
    pairs, spec = torch.float4_e2m1fn_x2, {"q": OutputSpec(dtype, shape)}
    assert storage(spec["q"]) == (stored, torch.uint8)
    for made in (codes, codes.view(pairs)) if shape else (codes,):
        (found,) = Reference(lambda made=made: made, {}, spec).native().values()
        assert torch.equal(found, codes)
    (found,) = Reference(lambda q: q.view(torch.uint8) + 1, {"q": codes.view(pairs)}, spec).native().values()
    assert torch.equal(found, codes + 1)


def test_inputs_of_pairs_are_told_apart() -> None:
    one, other = (torch.full((4, 4), n, dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for n in (0, 1))
    assert unalike({"q": one}, {"q": other})
    assert not unalike({"q": one}, {"q": one.clone()})
