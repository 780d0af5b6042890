"""Integers that are values and not indices: packed 4-bit numbers, 8-bit floats as bytes, exponents."""

from __future__ import annotations

from typing import Final

import torch

from pytest_flashinfer.inputs.dtypes import BYTES

BYTE_KINDS: Final = frozenset({"bytes", "fused_bytes", "e8m0"})
_EXPONENTS: Final = (122, 129)  # 2**-5 to 2**1
_EXTREME: Final = 1 / 3  # of tensors have such rows
_KINDS: Final = 6  # of rows: the least, the greatest, one value, and as many that are as drawn
_LAST: Final = (1 << 63) - 2  # that can be drawn


def content_bytes(  # noqa: PLR0913, PLR0917 - one tensor in all its parts
    kind: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator,
    least: int | None = None, most: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return a contiguous tensor of `dtype` on the generator's device whose bytes are such content.

    Values are from `least` to `most`, where those are given. `bytes`: any, in some tensors with rows of the least, the
    greatest or one other: a sum that saturates shows only then. `e8m0`: exponents of scales about 1.
    `fused_bytes`: small as 8-bit floats and as exponents, and every four of them a float32 between 1/8 and 2, for rows
    that hold values and their scales.
    """
    plain = torch.uint8 if dtype in BYTES else dtype
    bounded, ends = (least, most) != (None, None) and dtype not in BYTES, torch.iinfo(plain)
    low, high = max(ends.min, -_LAST if least is None else least), min(ends.max, _LAST if most is None else most)
    if kind == "bytes" and bounded:
        drawn = torch.randint(low, max(low, high) + 1, shape, generator=generator, device=generator.device)
        return _with_equal_rows(drawn.to(dtype), (low, high), generator)
    out = torch.empty(shape, dtype=plain, device=generator.device)
    flat = out.view(-1).view(torch.uint8)
    flat.random_(*(_EXPONENTS if kind == "e8m0" else (0, 256)), generator=generator)
    if kind == "fused_bytes":
        flat &= 0xBF  # below 2 as float8_e4m3fn, far from infinity as an exponent
        flat[3::4] = 0x3E + (flat[3::4] & 1)
    if kind == "bytes" and dtype not in BYTES:
        _with_equal_rows(out, (ends.min, ends.max), generator)
    return out.clamp_(low, max(low, high)) if bounded else out.view(dtype)


def _with_equal_rows(values: torch.Tensor, ends: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Overwrite, in one tensor out of three, some rows [..., columns] by one of the ends or by their first value."""
    device = generator.device
    if values.dim() < 2 or not values.numel():  # noqa: PLR2004 - without rows
        return values
    if float(torch.rand((), generator=generator, device=device)) > _EXTREME:
        return values
    rows = values.view(-1, values.shape[-1])
    kinds = torch.randint(0, _KINDS, (len(rows), 1), generator=generator, device=device)
    for kind, end in enumerate(ends):
        rows.masked_fill_(kinds == kind, end)
    rows.copy_(torch.where(kinds == len(ends), rows[:, :1], rows))
    return values
