"""Rows of ids that are alike, and ids that count up: what kernels take a shorter way for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.integers.indices import uniform_ids

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Setting

_FEW: Final = 4  # as many rows at the most: positions in time, height and width have a row each
# What is done to a single row of ids, or to several, after they are drawn: one of these words is chosen at random, and
# `any` leaves them as they are. `range`: the whole row counts up, `begins`: its first half does. `equal`: all rows are
# the same, `two`: two of them are.
_ONE: Final = ("any", "any", "range", "begins")
_SEVERAL: Final = (*("any",) * 4, "equal", "two", "range", "begins")


def ids_alike(setting: Setting, name: str, limit: int | None, device: torch.device) -> torch.Tensor:
    """Return ids as `uniform_ids` does, of which at times rows are equal, or two of them, or one or all count up."""
    ids = uniform_ids(setting, name, limit, device)
    if not ids.numel() or setting.plan.roles[name].unused:
        return ids
    lines, rng = ids.view(-1, ids.shape[-1]), setting.rng
    count, width = lines.shape
    kind = rng.choice(_ONE if count == 1 else _SEVERAL)
    if kind == "equal":
        lines[:] = lines[:1].clone()
    elif kind == "two":
        one, other = rng.sample(range(count), 2)
        lines[one] = lines[other]
    elif kind != "any":
        _count_up(setting, name, limit, lines, width if kind == "range" else width // 2 + 1)
    return ids


def _count_up(setting: Setting, name: str, limit: int | None, lines: torch.Tensor, width: int) -> None:
    """Have one row or all begin with so many ids in their order, where there are as many: the first or the last."""
    low, high = setting.limits(name)
    first = max(0, low or 0)
    ends = [end for end in (limit, None if high is None else high + 1) if end is not None]
    end = min(ends, default=first + width)
    if first + width <= end:
        first = setting.rng.choice((first, end - width))
        rows = setting.rng.choice((slice(None), setting.rng.randrange(len(lines))))
        lines[rows, :width] = torch.arange(first, first + width, device=lines.device)


def are_few(setting: Setting, name: str) -> bool:
    """Whether a tensor has a few rows, by a constant."""
    dims = setting.contract.dims[name] or ()
    return len(dims) > 1 and setting.shape(name)[0] <= _FEW and names_of(dims[0]) <= setting.contract.constants.keys()
