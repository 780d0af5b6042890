"""Families with values that are not finite: for contracts that speak of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.inputs.floats.draws import normal, some_elements, some_rows, uniform

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.floats.draws import Draw


def neginf(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that hold nothing else, rows with it up to some column or from one on, as masks do, and single ones."""
    normal(x, draw)
    kinds = uniform(x, 0, 1, draw.rows)
    kinds[:1] = 0.0
    column = torch.arange(x.shape[1], device=x.device)
    edge = torch.randint(x.shape[1], (x.shape[0], 1), device=x.device, generator=draw.own)
    some = some_elements(x, 0.2, draw)
    x.masked_fill_((kinds < 0.3) | some, -math.inf)  # noqa: PLR2004
    x.masked_fill_((kinds > 0.8) & (column < edge), -math.inf)  # noqa: PLR2004
    x.masked_fill_((kinds > 0.6) & (kinds <= 0.8) & (column > edge), -math.inf)  # noqa: PLR2004
    if x.shape[1] == 1:  # one for each row: a whole block of neighbours, the first ones half of the time
        begin, end, first = torch.randint(len(x) + 1, (3,), device=x.device, generator=draw.own).tolist()
        x[0 if first % 2 else min(begin, end) : max(begin, end)] = -math.inf


def _one_entry(x: torch.Tensor, draw: Draw, value: float) -> None:
    normal(x, draw)
    rows = some_rows(x, 0.3, draw.rows)
    rows[:1] = True
    columns = torch.randint(x.shape[1], (x.shape[0], 1), device=x.device, generator=draw.own)
    x.scatter_(1, columns, torch.where(rows, value, x.gather(1, columns).to(torch.float32)).to(x.dtype))


def nan(x: torch.Tensor, draw: Draw) -> None:
    """Put a NaN into some rows, the first one among them."""
    _one_entry(x, draw, math.nan)


def inf(x: torch.Tensor, draw: Draw) -> None:
    """Put an infinity into some rows, the first one among them."""
    _one_entry(x, draw, math.inf)
