"""How many entries of each row a sampler keeps: usual numbers, any up to all of them, and what means all."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.scalars.special import special

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.integers.sequences import Setting

_USUAL: Final = (1, 2, 5, 40)
_FEW: Final = 8  # entries of a row where nothing says how many there are
_OFF: Final = re.compile(
    r"(?<![\w.])(0|-1)(?![\w.]\d*)[^.;,]{0,20}\b(all|off|none|no filter|disable[sd]?|every\w*|whole)\b"
)
_NONE_OR_LESS: Final = re.compile(
    r"\b(0|zero|none) or (less|below|negative|fewer)\b|\b(negative|less) or (0|zero)\b|\bnon-?positive\b|<= ?0\b"
)
_BEYOND: Final = re.compile(
    r"\b(may|can|could) (exceed|be (above|beyond|larger|greater|more))\b|\bor more: all\b"
    r"|\b(above|beyond|larger than|greater than|exceeds?|exceeding)\b[^.;]{0,40}\b(all|clamp\w*|clip\w*|whole)\b"
)


def top_k(setting: Setting, name: str) -> torch.Tensor:
    """Return a number for each row: a third are usual ones, the others lie anywhere up to a whole row.

    A kernel that keeps no more than its buffer holds, or that takes nearly all for all, shows in the latter. What keeps
    all by its meaning, 0 or more than there are, is among them where the contract knows of it and allows it.
    """
    low, high = setting.limits(name)
    row, (least, most) = setting.limit(name), setting.ends(name)
    row = None if row is None else min(row, most)  # it may be all of a row, which the dtype then has to hold
    top = max(1, low or 1, min(n for n in (row or high or _FEW, high) if n is not None))
    least, most = least if low is None else low, most if high is None else high
    apart = [n for n in _apart(setting, name, top, row) if least <= n <= most]
    picks = [_one(setting, max(1, low or 1), top, apart) for _ in range(math.prod(setting.shape(name)))]
    return torch.tensor(picks, dtype=torch.int64).view(setting.shape(name))


def _one(setting: Setting, least: int, top: int, apart: list[int]) -> int:
    rng = setting.rng
    usual, anywhere = rng.choice(_USUAL), rng.randint(least, top)
    small = round(math.exp(rng.uniform(math.log(least), math.log(top))))
    end = rng.choice((max(1, top // 2), top - 1, top))
    chosen = rng.choice((*[usual] * 3, *[anywhere] * 3, small, end, rng.choice(apart) if apart else usual))
    return chosen if chosen in apart else min(max(chosen, least), top)


def _apart(setting: Setting, name: str, top: int, row: int | None) -> Iterator[int]:
    """Yield numbers that mean something of their own: those that the contract names, and more than a row has."""
    text = (setting.contract.definition.inputs[name].description or "").lower()
    yield from (int(found[1]) for found in _OFF.finditer(text))
    yield from (0, -1) if _NONE_OR_LESS.search(text) else ()
    yield from (int(n) for n in special(setting.contract, name, top) if n <= 0)
    if row is not None and _BEYOND.search(text):
        yield from (row + 1, 2 * row)
