"""Draws from distributions, and what a statistic of theirs has to be like."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Statistic(Protocol):
    """What is counted of draws."""

    def add(self, ids: torch.Tensor, mass: torch.Tensor) -> None:
        """Note draws."""

    def chance(self) -> float:
        """Return how probable such draws are."""


def drawn(mass: torch.Tensor, seed: int) -> torch.Tensor:
    """One id from each row."""
    return torch.multinomial(mass, 1, generator=torch.Generator().manual_seed(seed))


def accuse_rarely(statistic: Callable[[], Statistic], mass_of: Callable[[int], torch.Tensor]) -> None:
    """Fail where honest draws are improbable more often than a chance says."""
    found = []
    for seed in range(60):
        counted, mass = statistic(), mass_of(seed)
        counted.add(drawn(mass, seed), mass)
        found.append(counted.chance())
    assert min(found) > 1e-4
    assert sum(each < 0.1 for each in found) <= 6 + 3 * math.sqrt(6)
