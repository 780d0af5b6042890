"""The ranges of floats that give a tensor its meaning: factors near 1, scales above 0, cosines and sines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_BASE: Final = 10000.0  # of rotary frequencies, usually
_BASES: Final = (3.0, 6.0)  # log10 of the least and the greatest
_USUAL: Final = 0.25  # how often it is the usual one
_FACTORS: Final = (0.7, 1.4)  # of attention, that such a table may be multiplied by
_FEW: Final = 0.2  # of a sampler's probabilities that are beyond what is usual
_FARTHEST: Final = 1024  # position, of a table of one position


def _range(low: float, high: float) -> Callable[[torch.Tensor, torch.Generator], None]:
    def fill(x: torch.Tensor, generator: torch.Generator) -> None:
        x.uniform_(low, high, generator=generator)

    return fill


def _power(low: float, high: float, sign: float = 1) -> Callable[[torch.Tensor, torch.Generator], None]:
    def fill(x: torch.Tensor, generator: torch.Generator) -> None:
        x.uniform_(low, high, generator=generator).exp2_().mul_(sign)

    return fill


def _near(centre: float, spread: float) -> Callable[[torch.Tensor, torch.Generator], None]:
    def fill(x: torch.Tensor, generator: torch.Generator) -> None:
        x.normal_(generator=generator).mul_(spread).add_(centre)

    return fill


def rotary(x: torch.Tensor, part: str, base: float | None, random: Random) -> None:
    """Fill with real cosines and sines: position along the axis before the last, frequency along the last.

    Where that axis has one entry only, all axes but the last count positions. Unless `base` is told it is drawn, and so
    is the position where there is no axis for it: a kernel that makes the table itself gives itself away then. So does
    one that takes position 0 for no rotation: models that stretch positions have their attention's factor in the table.
    """
    drawn = _BASE if random.random() < _USUAL else 10 ** random.uniform(*_BASES)
    position = random.randrange(1, _FARTHEST)
    factor = random.choice((1.0, random.uniform(*_FACTORS))) if base is None else 1.0
    flat = x if x.dim() > 1 and x.shape[-2] > 1 else x.view(-1, x.shape[-1])
    rows, half = flat.shape[-2], (x.shape[-1] + 1) // 2
    first = position if x.dim() == 1 and base is None else 0
    places = torch.arange(rows, dtype=torch.float32, device=x.device).view(-1, 1) + first
    steps = torch.arange(half, dtype=torch.float32, device=x.device)
    angles = places * (base or drawn) ** (-steps / half)
    halves = {"cos_sin": (angles.cos(), angles.sin()), "cos": (angles.cos(),) * 2, "sin": (angles.sin(),) * 2}
    flat.copy_(torch.cat(halves[part], dim=1)[:, : x.shape[-1]] * factor)


def _min_p(x: torch.Tensor, generator: torch.Generator) -> None:
    x.uniform_(-0.05, 0.3, generator=generator).clamp_min_(0)  # none at all is the usual one
    _some(x, torch.empty_like(x).uniform_(0.3, 1.05, generator=generator).clamp_max_(1), generator)


def _top_p(x: torch.Tensor, generator: torch.Generator) -> None:
    x.uniform_(0.05, 1.1, generator=generator)
    x.copy_(torch.where(x > 1, 1.0, x.clamp_max(0.95)))  # none at all is usual too
    _some(x, torch.empty_like(x).uniform_(-10, -4, generator=generator).exp2_(), generator)


def _some(x: torch.Tensor, other: torch.Tensor, generator: torch.Generator) -> None:
    """Have a few elements be the other ones, so that they lie anywhere in the range that their name states."""
    chosen = torch.empty(x.shape, dtype=torch.float32, device=x.device).uniform_(0, 1, generator=generator)
    x.copy_(torch.where(chosen < _FEW, other, x))


def _unit_weight(x: torch.Tensor, generator: torch.Generator) -> None:
    """Draw weights near 1, in some draws 1 but for a few, as those that were hardly trained: all of them count."""
    _near(1, 0.1)(x, generator)
    one = torch.empty(x.shape, dtype=torch.float32, device=x.device).uniform_(0, 1, generator=generator)
    if x.numel() and float(one.flatten()[0]) < _USUAL:
        ones = one < 1 - _FEW
        ones.view(-1)[[0, x.numel() // 2, -1]] = True
        x.masked_fill_(ones, 1)


def as_powers(x: torch.Tensor) -> torch.Tensor:
    """Return the next powers of two above the magnitudes in `x`, exactly; 1 for 0."""
    wide = x.float().abs()
    bits = (torch.frexp(wide).exponent.clamp(-125, 127) + 126) << 23
    return torch.where(wide > 0, bits.view(torch.float32), 1.0).to(x.dtype)


def _zero(x: torch.Tensor, generator: torch.Generator) -> None:
    del generator
    x.zero_()


FILLS: Final = {
    "zeros": _zero,
    "unit_weight": _unit_weight,
    "bias": _near(0, 0.2),
    "scale": _power(-1, 1),
    "weight_scale": _power(-1, 1),
    "temperature": _range(0.5, 1.5),
    "top_p": _top_p,
    "min_p": _min_p,
    "uniform": _range(0.001, 0.999),
    "a_log": _range(-0.7, 1.4),
    "time_step": _near(0, 1),  # before its softplus
    "negative": _power(-2, 2, -1),
    "log_decay": _power(-6, 0, -1),
    "strong_log_decay": _power(-6, 0, -1),
    "decay": _range(0.05, 0.99),
}
