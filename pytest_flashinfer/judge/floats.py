"""Floating-point formats: spacing, roundoff, representability, and codes of narrow formats."""

from __future__ import annotations

import math

import torch

from pytest_flashinfer.data.dtypes import FOUR_BITS, PAIRS

# name of a dtype in a definition -> (significant bits, smallest exponent of a normal number, largest finite value)
_FORMATS: dict[str, tuple[int, int, float]] = {
    "float64": (53, -1022, torch.finfo(torch.float64).max),
    "float32": (24, -126, torch.finfo(torch.float32).max),
    "bfloat16": (8, -126, torch.finfo(torch.bfloat16).max),
    "float16": (11, -14, 65504.0),
    "float8_e4m3fn": (4, -6, 448.0),
    "float8_e5m2": (3, -14, 57344.0),
    "float8_e8m0fnu": (1, -127, 2.0**127),
    "float4_e2m1": (2, 0, 6.0),
}
_ALIASES = {"float8_e4m3": "float8_e4m3fn", PAIRS: "float4_e2m1"}
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_DOUBLE = 53
SIXTEEN = (torch.bfloat16, torch.float16)
FLUSH = 2.0**-126  # results below the smallest normal float32 may be flushed to zero by fast kernels


def canonical(dtype: str) -> str:
    """Return the canonical name of a dtype as definitions spell it."""
    return _ALIASES.get(dtype, dtype)


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name without its module: `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def is_packed(dtype: str) -> bool:
    """Say whether a byte holds two values of this dtype."""
    return canonical(dtype) in FOUR_BITS


def is_float(dtype: str) -> bool:
    """Say whether values of this dtype are compared as real numbers (packed fp4 is compared by code)."""
    return canonical(dtype) in _FORMATS and not is_packed(dtype)


def is_narrow(dtype: torch.dtype) -> bool:
    """Say whether a dtype is an 8-bit float: a cast to it is a quantisation that the reference means."""
    return dtype.is_floating_point and dtype.itemsize == 1


def roundoff(dtype: str) -> float:
    """Return the largest relative error of one rounding to nearest."""
    return 2.0 ** -_FORMATS[canonical(dtype)][0]


def largest(dtype: str) -> float:
    """Return the largest finite value."""
    return _FORMATS[canonical(dtype)][2]


def overflow_at(dtype: str) -> float:
    """Return the magnitude from which rounding to nearest overflows."""
    bits, _, top = _FORMATS[canonical(dtype)]
    return top + 2.0 ** (math.frexp(top)[1] - bits) / 2 if bits < _DOUBLE else math.inf


def spacing(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the distance between neighbours of `dtype` around each value (float64 in, float64 out, finite)."""
    bits, low, _ = _FORMATS[canonical(dtype)]
    normal = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).abs_().clamp_min_(2.0**low)
    return normal.div_(torch.frexp(normal).mantissa).mul_(2.0**-bits)  # the quotient is a power of two, and exact


def representable(values: torch.Tensor, dtype: torch.dtype) -> bool:
    """Say whether rounding to `dtype` changes no value (NaN counts as unchanged)."""
    return not bool(moved(values, dtype).any())


def moved(values: torch.Tensor, dtype: torch.dtype, near: float = 0.0) -> torch.Tensor:
    """Return which values (float64 or float32) rounding to `dtype` changes by more than `near` of them; NaN by none."""
    plain = values.as_subclass(torch.Tensor)
    there = plain.to(dtype).to(plain.dtype)
    same = (there == plain) | plain.isnan()
    return ~(same | ((there - plain).abs() <= near * plain.abs())) if near else ~same


def unpack(packed: torch.Tensor, dtype: str) -> torch.Tensor:
    """Unpack two 4-bit codes a byte (low nibble first) along the last axis: float4_e2m1 to float32, int4 to int8."""
    low, high = packed & 0xF, (packed >> 4) & 0xF
    codes = torch.stack([low, high], dim=-1).flatten(-2).long() if packed.ndim else torch.stack([low, high]).long()
    if canonical(dtype) == "int4":
        return torch.where(codes >= 8, codes - 16, codes).to(torch.int8)  # noqa: PLR2004 - the sign bit of a nibble
    table = torch.tensor([*_FP4, *(-x for x in _FP4)], dtype=torch.float32, device=packed.device)
    return table[codes]


def code_order(values: torch.Tensor) -> torch.Tensor:
    """Map an 8- or 16-bit float tensor to int32 codes in which neighbours differ by one and both zeros are equal."""
    if values.dtype is torch.float8_e8m0fnu:  # powers of two, without a sign
        return values.view(torch.uint8).to(torch.int32)
    width = values.element_size() * 8
    raw = values.view(torch.uint8 if width == 8 else torch.int16).to(torch.int32) & ((1 << width) - 1)  # noqa: PLR2004
    magnitude = raw & ((1 << (width - 1)) - 1)
    return torch.where(raw >> (width - 1) == 1, -magnitude, magnitude)
