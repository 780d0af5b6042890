"""Integers that are values and not indices: packed 4-bit numbers, 8-bit floats as bytes, exponents."""

from __future__ import annotations

from typing import Final

import torch

from pytest_flashinfer.inputs.dtypes import BYTES

BYTE_KINDS: Final = frozenset({"bytes", "fused_bytes", "e8m0"})
_EXPONENTS: Final = (122, 129)  # 2**-5 to 2**1


def content_bytes(kind: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return a contiguous tensor of `dtype` on the generator's device whose bytes are such content.

    `bytes`: any. `e8m0`: exponents of scales about 1. `fused_bytes`: small as 8-bit floats and as exponents, and every
    four of them a float32 between 1/8 and 2, for rows that hold values and their scales.
    """
    plain = torch.uint8 if dtype in BYTES else dtype
    out = torch.empty(shape, dtype=plain, device=generator.device)
    low, high = _EXPONENTS if kind == "e8m0" else (0, 256)
    flat = out.view(-1).view(torch.uint8)
    flat.random_(low, high, generator=generator)
    if kind == "fused_bytes":
        flat &= 0xBF  # below 2 as float8_e4m3fn, far from infinity as an exponent
        flat[3::4] = 0x3E + (flat[3::4] & 1)
    return out.view(dtype)
