"""How far integers may be from the reference's where a rounding decides them: as far as those of some noise run."""

from __future__ import annotations

from typing import Final

import torch

from pytest_flashinfer.judge.floats import is_packed

ANY: Final = 255  # or farther
_AT_ONCE: Final = 1 << 24  # elements
_COUNTED: Final = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def countable(stored: torch.dtype, dtype: str) -> bool:
    """Say whether differences of an output's integers mean something: not those of bools and packed codes."""
    return stored in _COUNTED and not is_packed(dtype)


def apart(native: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the absolute differences as bytes, in the shape of both; `ANY` for what is as far apart, or farther."""
    found = torch.empty(native.shape, dtype=torch.uint8, device=native.device)
    wide = torch.int16 if native.itemsize == 1 else torch.int64
    parts = (torch.split(each.reshape(-1), _AT_ONCE) for each in (found, native, other))
    for bytes_, one, two in zip(*parts, strict=True):
        one, two = one.to(wide), two.to(wide)  # noqa: PLW2901
        distance = torch.maximum(one, two) - torch.minimum(one, two)
        bytes_.copy_(distance.masked_fill_(distance < 0, ANY).clamp_(max=ANY))  # beyond 2**63 they are negative
    return found


def allowed(reach: torch.Tensor) -> torch.Tensor:
    """Return how far integers may be off that were found so far apart: half as far again, for few runs were made.

    Both are bytes of one shape, as `apart` gives them.
    """
    wide = reach.to(torch.int16)
    return (wide + wide // 2).clamp_(max=ANY).to(torch.uint8)


def beyond(distance: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Return, as bool, which differences, words of 64 bits, are beyond a limit, bytes; all three have one shape."""
    return (limit < ANY) & ((distance < 0) | (distance > limit))
