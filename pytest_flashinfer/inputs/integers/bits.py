"""Masks of bits, packed into words: full words and empty ones beside others, and rows with a single bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting

_SHARE: Final = 0.15  # of words that are full, and of those that are empty
_LONGEST: Final = 64  # bits
_SINGLE: Final = 0.2  # of rows that have one bit


def bits(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    """Return words whose bits are set or not at random, all of them in some and none in others.

    Each row of a matrix keeps a bit, and so does each word where nobody knows where rows end, unless the structure is
    `blank`: then every other has none. In `uniform` all are set.
    """
    del found
    shape, ends = setting.shape(name), torch.iinfo(getattr(torch, setting.contract.dtype(name)))
    ends = torch.iinfo(torch.int64) if ends.bits == _LONGEST else ends  # which has all the bits of unsigned words
    full = -1 if ends.min < 0 else ends.max
    if setting.structure == "uniform":
        return torch.full(shape, full, dtype=torch.int64, device=device)
    generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
    words = torch.randint(ends.min, ends.max, shape, generator=generator, device=device)
    kinds = torch.rand(shape, generator=generator, device=device)
    words.masked_fill_(kinds < _SHARE, full)
    if not words.numel():
        return words
    rows = words.view(-1, shape[-1]) if len(shape) > 1 else words.view(-1, 1)
    if rows.shape[1] > 1:
        words.masked_fill_(kinds > 1 - _SHARE, 0)
        rows[torch.rand(len(rows), generator=generator, device=device) < _SINGLE] = 0
    _set_one(rows, ends, generator)
    if setting.structure == "blank":
        rows[::2] = 0
    return words


def _set_one(rows: torch.Tensor, ends: torch.iinfo, generator: torch.Generator) -> None:
    """Set a bit of each row, at any place: but of the last word, whose other bits may be behind the end, the first."""
    count, last = len(rows), rows.shape[1] - 1
    where = torch.randint(last + 1, (count, 1), generator=generator, device=rows.device)
    place = torch.randint(ends.bits, (count, 1), generator=generator, device=rows.device).masked_fill_(where == last, 0)
    bit = torch.ones_like(place) << place
    if ends.min < 0:
        bit.masked_fill_(place == ends.bits - 1, ends.min)  # the sign
    rows.scatter_(1, where, rows.gather(1, where) | bit)
