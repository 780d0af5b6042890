"""Random numbers for the noise runs."""

from __future__ import annotations

import math
import random

import torch

_ROOT3 = math.sqrt(3.0)
_PERIOD = 1_048_583  # a prime: drawing numbers costs more than the operations that they disturb


class Dice:
    """Draws for all runs of a case, from a generator of its own: the reference's random numbers stay what they are.

    `keyed`: equal values get equal numbers, as equal operands get equal roundings in a kernel, so that a tie stays a
    tie. It is for float64 only, and for references that order values.
    """

    def __init__(self, device: torch.device, seed: int, *, keyed: bool) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.keyed = keyed
        self._numbers = random.Random(seed)  # noqa: S311 - on the host, without waiting for a card
        self.salt = self._numbers.getrandbits(40)

    def factor(self, like: torch.Tensor, unit: float) -> torch.Tensor:
        """Draw factors around one; infinite values stay what they are under them."""
        plain = like.as_subclass(torch.Tensor)
        if self.keyed:
            return self.draw(plain).mul_(unit).add_(1)
        return self._uniform(plain, 1 - _ROOT3 * unit, 1 + _ROOT3 * unit)

    def draw(self, like: torch.Tensor) -> torch.Tensor:
        """Draw values of zero mean and unit variance, bounded by the root of three.

        With `keyed`, equal values of a tensor get equal ones.
        """
        plain = like.as_subclass(torch.Tensor)
        if not self.keyed:
            return self._uniform(plain, -_ROOT3, _ROOT3)
        self.salt += 0x9E3779B9
        return self.of(plain, self.salt)

    def of(self, plain: torch.Tensor, salt: int) -> torch.Tensor:
        """Return such numbers that follow from the values and `salt`, also of another tensor."""
        bits = plain.to(torch.float64).contiguous().view(torch.int64) * 0x1E3779B97F4A7C15 + salt
        bits = (bits ^ (bits >> 31)) * 0x3F58476D1CE4E5B9
        numbers = ((bits ^ (bits >> 29)) >> 11).to(torch.float64) * (_ROOT3 * 2.0**-52)
        return numbers.to(plain.dtype)

    def rounding(self, like: torch.Tensor, unit: float) -> torch.Tensor:
        """Draw factors never close to one: where a single value matters, few runs must not miss its rounding."""
        signs = self.draw(like).mul_(0.87 / _ROOT3)
        return signs.add_(signs.sign(), alpha=0.5).mul_(unit / 0.968).add_(1)

    def number(self) -> float:
        """Draw a number between -1 and 1."""
        return self._numbers.uniform(-1.0, 1.0)

    def _uniform(self, like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        """Draw uniform numbers; large tensors repeat them, at a distance that no axis is likely to share."""
        if like.numel() <= _PERIOD:
            return torch.empty_like(like).uniform_(low, high, generator=self.generator)
        some = torch.empty(_PERIOD, dtype=like.dtype, device=like.device).uniform_(low, high, generator=self.generator)
        return some.repeat(-(-like.numel() // _PERIOD))[: like.numel()].view(like.shape)
