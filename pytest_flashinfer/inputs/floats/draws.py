"""Where the values of one float tensor come from, and what families are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Draw:
    """Where one tensor's values come from.

    `own` differs from tensor to tensor. `rows` starts from the same state for every tensor of a recipe, so that the
    rows that stand out are the same ones in all tensors of as many rows: a residual is zero where its input is.
    """

    own: torch.Generator
    rows: torch.Generator
    limit: float  # log2 of the largest finite value of the tensor's dtype
    shape: tuple[int, ...] = ()  # of the rows

    @property
    def alike(self) -> int:
        """How many rows an entry of the first axis has."""
        return math.prod(self.shape[1:])


Fill = Callable[[torch.Tensor, Draw], None]


def normal(x: torch.Tensor, draw: Draw) -> None:
    """Fill with values of the standard normal distribution."""
    x.normal_(generator=draw.own)


def uniform(x: torch.Tensor, low: float, high: float, generator: torch.Generator, *, columns: int = 1) -> torch.Tensor:
    """Return float32 numbers [rows of x, columns], uniform in [low, high)."""
    wide = torch.empty((x.shape[0], columns), dtype=torch.float32, device=x.device)
    return wide.uniform_(low, high, generator=generator)


def some_rows(x: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """Choose about this share of the rows: bools [rows of x, 1]."""
    return uniform(x, 0, 1, generator) < share


def some_elements(x: torch.Tensor, share: float, draw: Draw) -> torch.Tensor:
    """Choose about this share of the elements: bools like x."""
    return torch.empty(x.shape, dtype=torch.float16, device=x.device).uniform_(0, 1, generator=draw.own) < share


def scale_rows(x: torch.Tensor, draw: Draw, low: float, high: float) -> None:
    """Multiply each row by 2**u, u uniform in [low, high]; the first row always gets the largest factor."""
    high = min(high, draw.limit - 4)
    amplitude = uniform(x, min(low, high), high, draw.rows)
    amplitude[:1] = high
    x.mul_(amplitude.exp2_().to(x.dtype))
