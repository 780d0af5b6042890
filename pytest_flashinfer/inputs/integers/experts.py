"""The experts that tokens are routed to, alone or with a weight in the same word."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.inputs.errors import AxisConflict
from pytest_flashinfer.inputs.integers.indices import distinct_rows, ends_of_range, sample
from pytest_flashinfer.inputs.roles.descriptions import expert_below
from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Setting


def experts(setting: Setting, name: str, device: torch.device, limit: int) -> torch.Tensor:
    """Return the experts of each token, distinct in a row; loads are uneven unless the structure is `uniform`.

    Mostly the first or the last expert is among them.
    """
    shape = setting.shape(name)
    rows, width = math.prod(shape[:-1]), shape[-1]
    if width > limit:
        raise AxisConflict(f"{name} distinct", f"{width} experts a token and {limit} experts")
    if setting.structure == "one_long":
        ids = _with_ends(setting, sample(setting, width, limit).view(1, -1), limit).to(device).repeat(rows, 1)
    elif setting.structure == "uniform":
        ids = (torch.arange(rows * width, device=device) % limit).view(rows, width)
    else:
        few = max(width, limit // 2)  # the other experts get no token in some of the rows
        ids = distinct_rows(setting, rows, width, limit, device)
        head = (rows + 1) // 2
        ids[:head] = distinct_rows(setting, head, width, few, device)
        ids = _with_ends(setting, ids, limit)
    if name in setting.plan.promises.repeats and way_of(setting.seed, "repeats", 2) and width:
        ids[::2, -1] = ids[::2, 0]
    return ids.view(shape)


def _with_ends(setting: Setting, ids: torch.Tensor, limit: int) -> torch.Tensor:
    """Put the first and the last id into rows that keep distinct, where no row has them."""
    for end in ends_of_range(setting, 0, limit) if ids.numel() else ():
        if not bool((ids == end).any()):
            ids[setting.rng.randrange(ids.shape[0]), setting.rng.randrange(ids.shape[1])] = end
    return ids


def packed_experts(ids: torch.Tensor, setting: Setting, name: str) -> torch.Tensor:
    """Put a weight in bfloat16 beside each expert's id, as routed kernels take them: below it, or as is told."""
    generator = torch.Generator(ids.device).manual_seed(setting.rng.getrandbits(48))
    weight = torch.rand(ids.shape, generator=generator, device=ids.device).to(torch.bfloat16)
    bits = weight.view(torch.int16).to(torch.int64) & 0xFFFF
    below = expert_below(setting.contract.definition.inputs[name].description or "")
    return (bits << 16) | ids if below else (ids << 16) | bits
