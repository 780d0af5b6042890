"""Numbers that a reference draws at random: wide runs have the same ones, since torch draws others in another dtype."""

from __future__ import annotations

from typing import Any

import torch

from pytest_flashinfer.judge.oracle.lifted import Lifted


def natively(value: Any) -> Any:
    """Return a wide tensor as the reference would have it; anything else as it is."""
    return value.as_subclass(torch.Tensor).to(value.declared) if isinstance(value, Lifted) else value


def draw(func: Any, written: list[Any], values: list[Any], kwargs: dict[str, Any]) -> Any:
    """Draw in the dtypes that the reference draws in, also into what is `written` (positions, or "out")."""
    given: dict[Any, Any] = {**dict(enumerate(values)), **kwargs}
    plain = {key: natively(each) for key, each in given.items()}
    for key in written:  # what comes depends on the strides as well
        target = given[key]
        laid = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype, device=target.device)
        plain[key] = laid.copy_(plain[key])
    result = func(*(plain[place] for place in range(len(values))), **{key: plain[key] for key in kwargs})
    for key in written:
        given[key].copy_(plain[key])
        result = given[key] if result is plain[key] else result
    return result


def kept(func: Any, x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, float]:  # noqa: FBT001
    """Return which values a dropout keeps, and the factor that they are scaled up by."""
    mask: torch.Tensor = func(natively(x), p, train)[1]
    return mask, 1.0 if train is False else 0.0 if p == 1 else 1 / (1 - p)


def dropped(x: torch.Tensor, mask: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a dropout does: the values that are kept, scaled, and zeros."""
    return x * mask * factor, mask
