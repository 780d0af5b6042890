"""Answers of the device that are read all at once, since each reading waits for it."""

from __future__ import annotations

import torch


def read_all(*groups: list[torch.Tensor]) -> list[list[bool]]:
    """Return the values of 0-d bool tensors, group by group, after a single wait."""
    asked = [flag for group in groups for flag in group]
    values = iter(torch.stack(asked).tolist() if asked else [])
    return [[next(values) for _ in group] for group in groups]
