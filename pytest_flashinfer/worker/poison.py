"""Bit patterns that say "nobody wrote here": a NaN with a random payload, a sentinel that no index or count reaches.

The random part is drawn per run, so that a solution cannot leave the poison of one run as an answer, and a NaN that
was computed (whose payload hardware fixes) is not taken for an element that was never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    import random

# dtype: (bits that are always set, mask of the random payload); the sign stays clear, so that the pattern fits a
# signed word
_NAN: Final = {
    torch.float64: (0x7FF8 << 48, (1 << 51) - 1),
    torch.float32: (0x7FC0 << 16, (1 << 22) - 1),
    torch.float16: (0x7E00, (1 << 9) - 1),
    torch.bfloat16: (0x7FC0, (1 << 6) - 1),
}
_BYTES: Final = {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7F, "float8_e4m3fnuz": 0x80, "float8_e5m2fnuz": 0x80}
_BYTE_TYPES: Final = {
    **{getattr(torch, name): value for name, value in _BYTES.items() if hasattr(torch, name)},
    torch.float8_e8m0fnu: 0xFF,
    torch.bool: 0xAA,  # true and false are stored as 1 and 0
}
_WORDS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def word_type(dtype: torch.dtype) -> torch.dtype:
    """Return the integer dtype in whose words the pattern of `dtype` is written."""
    return _WORDS[min(dtype.itemsize, 8)]


def pattern(dtype: torch.dtype, rng: random.Random) -> int:
    """Draw the poison of `dtype`, as a value of `word_type(dtype)`."""
    part = dtype.to_real() if dtype.is_complex else dtype
    if part in _NAN:
        fixed, payload = _NAN[part]
        word = fixed | (rng.getrandbits(64) & payload or 1)
        return word | word << 32 if dtype is torch.complex64 else word
    if part in _BYTE_TYPES:
        return _BYTE_TYPES[part]
    bits = 8 * dtype.itemsize
    if bits == 8:  # noqa: PLR2004 - a byte
        return rng.randint(0x81, 0x9C)
    return -(1 << bits - 1) + rng.getrandbits(bits - 2)


def is_certain(dtype: torch.dtype) -> bool:
    """Whether a single element that still holds the pattern proves that nobody wrote it.

    One- and two-byte integers and 8-bit floats can hold the pattern by right.
    """
    return dtype is torch.bool or dtype.itemsize >= 4 or dtype in _NAN  # noqa: PLR2004 - one in 2**30 by chance
