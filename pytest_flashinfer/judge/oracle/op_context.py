"""What a dispatch mode does not see by itself: that operations belong to an einsum, or are under autocast."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.lifted import Lifted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_flashinfer.judge.oracle.wide import WideMode


@contextmanager
def einsums(mode: WideMode) -> Iterator[None]:
    """Tell a mode of sums of products: over an axis of length 1 torch multiplies, and no matrix product is seen."""
    original = torch.einsum

    def einsum(equation: Any, *operands: Any) -> torch.Tensor:
        mode.contracting = not isinstance(equation, str) or _sums(equation)
        try:
            return original(equation, *operands)
        finally:
            mode.contracting = False

    torch.einsum = einsum
    try:
        yield
    finally:
        torch.einsum = original


def _sums(equation: str) -> bool:
    """Say whether a letter of an equation is summed over: it is not in the result, or, without one, stands twice."""
    given, arrow, result = equation.partition("->")
    letters = [each for each in given if each.isalpha()]
    return any(each not in result if arrow else letters.count(each) > 1 for each in letters)


@contextmanager
def autocasts(mode: WideMode) -> Iterator[None]:
    """Tell a mode while autocast is on: it leaves tensors of float64 as they are, also those that stand for others."""
    kind: Any = torch.autocast
    enter, leave = kind.__enter__, kind.__exit__
    before: list[torch.dtype | None] = []

    def entered(self: Any) -> Any:
        before.append(mode.casting)
        mode.casting = self.fast_dtype if self._enabled else None
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        mode.casting = before.pop()
        return leave(self, *error)

    kind.__enter__, kind.__exit__ = entered, left
    try:
        yield
    finally:
        kind.__enter__, kind.__exit__ = enter, leave


def cast(args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """Cast the operands of a product as autocast does."""
    return [x.to(dtype) if isinstance(x, Lifted) and x.declared is not torch.float64 else x for x in args]
