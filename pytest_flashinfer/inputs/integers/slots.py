"""Slots of pools: distinct, in one tensor and in several that point into the same pool."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.inputs.errors import AxisConflict
from pytest_flashinfer.inputs.integers import unused
from pytest_flashinfer.inputs.integers.index_targets import check_distinct, first_of, limit_of, nothing_to_point_at
from pytest_flashinfer.inputs.integers.indices import sample

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Setting


def slots(setting: Setting, name: str) -> torch.Tensor:
    """Return slots of a pool, distinct, and none that another tensor has; some are unused, where the contract allows.

    Of slots that are read and others that are written, what comes first would matter otherwise. Raises AxisConflict
    where there are too few for what the description says.
    """
    shape, limit = setting.shape(name), limit_of(setting, name)
    count = math.prod(shape)
    first = first_of(setting, name)
    every = limit - first
    role = setting.plan.roles[name]
    if count and not every:
        if role.unused:
            return torch.full(shape, role.unused[0], dtype=torch.int64)
        raise nothing_to_point_at(setting, name, f"{count} slots")
    check_distinct(setting, name, count)
    if count > every and role.distinct and not role.unused:
        raise AxisConflict(f"{name} distinct", f"{count} ids and {every} that they may be")
    left = _untaken(setting, name, first, limit)
    room = len(left) if left is not None and count <= len(left) else every
    ids = torch.arange(count) % room if setting.structure == "identity" and room else sample(setting, count, room)
    ids = left[ids] if left is not None and count <= len(left) else ids + first
    if role.unused and count > every:
        ids[every:] = role.unused[0]
        ids[:every] = sample(setting, every, every) + first
    else:
        unused.mark(setting, name, ids)
    return ids.view(shape)


def _untaken(setting: Setting, name: str, first: int, limit: int) -> torch.Tensor | None:
    """Return the slots from `first` to below `limit` that no other tensor has; `None` where no other is of the pool."""
    mine = setting.plan.roles[name].limit
    same = [
        setting.given[other]
        for other in setting.plan.of("slots")
        if other != name and other in setting.given and _text(setting.plan.roles[other].limit) == _text(mine)
    ]
    if not same:
        return None
    free = torch.arange(limit) >= first
    for ids in same:
        flat = ids.cpu().flatten().long()
        free[flat[(flat >= 0) & (flat < limit)]] = False
    return free.nonzero().flatten()


def _text(tree: ast.expr | None) -> str:
    return "" if tree is None else ast.unparse(tree)
