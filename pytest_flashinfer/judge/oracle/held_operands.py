"""What is lost of the operands of products that a kernel holds in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.floats import moved
from pytest_flashinfer.judge.oracle.lifted import Lifted

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.wide import Step

_NEAR = 2.0**-21  # of a value: what float32 arithmetic may be off by where the result has few bits
_MANY = 0.01  # of the values


def rounds(step: Step, place: int, arg: torch.Tensor, dtype: torch.dtype) -> bool:
    """Say whether any value of an argument is rounded where it is held in `dtype`; note where many are not.

    The weights of 64 equal keys, say, have few enough bits, and so have exponentials of zero.
    """
    plain = arg.as_subclass(torch.Tensor)
    changed = moved(plain, dtype, _NEAR)
    exact = ~changed & (plain != 0)
    if bool(exact.double().mean() > _MANY):
        step.exact[place] = exact
    return bool(changed.any())


def held(step: Step, place: int, plain: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Return `changed` with the values that 16 bits hold exactly as they are in `plain`; all have one shape."""
    exact = step.exact.get(place)
    return changed if exact is None or exact.shape != plain.shape else torch.where(exact, plain, changed)


def summed_top(step: Step, place: int, plain: torch.Tensor) -> torch.Tensor:
    """Return the largest magnitudes along the axis that a product sums, which is kept with size 1.

    Where that axis is not known, the largest of all, 0-d. Exponentials that are not yet divided by their sum have 1.
    """
    if not plain.numel():
        return plain.new_ones(())
    axis = {0: -1, 1: -2}.get(place) if step.name in ("mm", "bmm") else None
    top = plain.abs().amax() if axis is None else plain.abs().amax(dim=axis, keepdim=True)
    return torch.where((top > 0) & top.isfinite(), top, 1.0)


def held_error(func: Any, step: Step, args: list[Any]) -> torch.Tensor:
    """Return the rms error, in the shape of its result, of a product whose operands in `step.low` are in 16 bits."""
    squares = [arg.as_subclass(torch.Tensor).square() if isinstance(arg, Lifted) else arg for arg in args]
    if step.name.startswith(("add", "badd")):
        squares[0] = torch.zeros_like(squares[0])
    error: Any = 0.0
    for place, dtype in step.low:
        own = held(step, place, torch.zeros_like(squares[place]), squares[place])
        error = error + func(*squares[:place], own, *squares[place + 1 :]) * (torch.finfo(dtype).eps / 4) ** 2
    found: torch.Tensor = error.sqrt_()
    return found
