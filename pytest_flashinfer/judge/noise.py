"""Noise runs: the lifted reference with the rounding errors that an honest kernel may make, drawn at random."""

from __future__ import annotations

import math
from typing import Any

import torch

from .floats import is_narrow
from .lift import Lifted, Plan, Step, WideMode, flatten, replace, short, tag
from .ops import Kind, Op, magnitude

_ROOT3 = math.sqrt(3.0)
_FLIP = 2.0**-20  # values this close to a rounding boundary (relative) may fall on either side of it
_UNKNOWN = Step("unknown", Kind.SMOOTH)


class Noise(WideMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that disturbs what `plan` says is inexact.

    `unit`: rms relative error of one float32 rounding, already scaled by the caller. `operands`: whether values held in 16 bits
    inside are disturbed too (half a unit roundoff, rms).
    """

    def __init__(
        self, wide: torch.dtype, plan: Plan, generator: torch.Generator, unit: float, *, operands: bool
    ) -> None:
        super().__init__(wide)
        self.plan = plan
        self.generator = generator
        self.unit = unit
        self.operands = operands
        self.place = 0
        self.salt = int(torch.randint(1, 2**40, (), generator=generator, device=generator.device))
        self._sums: torch.Tensor | None = None

    def before(self, func: Any, op: Op, args: list[Any], asked: torch.dtype | None) -> Step:
        """Round or disturb arguments, and work out how large the result's own error is."""
        step = self._next(op, asked)
        for place, dtype in step.low:
            if place < len(args) and isinstance(args[place], Lifted):
                replace(op, args, place, self._lowered(args[place], dtype))
        self._sums = None
        if not step.noisy:
            return step
        if step.kind is Kind.ROUND:
            self._each(op, args, _FLIP)
        elif step.kind in (Kind.SMOOTH, Kind.LOGSUM):
            self._each(op, args, self.unit)
        elif step.kind is Kind.ELEMENT:
            args[:] = [arg if short(arg) else arg * (1 + self.unit * self._number()) for arg in args]
        elif step.kind in (Kind.CONTRACT, Kind.SUM):
            self._sums = _uncertainty(func, step, args)
        return step

    def _next(self, op: Op, asked: torch.dtype | None) -> Step:
        """Take the next step of the plan; after a data-dependent branch went another way nothing is exact any more."""
        step = self.plan.steps[self.place] if self.place < len(self.plan.steps) else _UNKNOWN
        self.place += 1
        if step.name != op.name:
            return Step(op.name, op.kind, asked)
        return step

    def _each(self, op: Op, args: list[Any], unit: float) -> None:
        for place, arg in enumerate(args):
            if isinstance(arg, Lifted):
                replace(op, args, place, torch.addcmul(arg, arg, self.draw(arg), value=unit))

    def _lowered(self, arg: Lifted, dtype: torch.dtype) -> torch.Tensor:
        if is_narrow(dtype):
            near = arg if arg.clean else torch.addcmul(arg, arg, self.draw(arg), value=_FLIP)
            return near.as_subclass(torch.Tensor).to(dtype).to(self.wide)
        if self.operands:
            return torch.addcmul(arg, arg, self.draw(arg), value=torch.finfo(dtype).eps / 4)
        return arg

    def after(self, step: Step, args: list[Any], tensor: torch.Tensor, written: bool) -> torch.Tensor:  # noqa: FBT001
        """Add the rounding error of the operation itself."""
        if step.noisy and tensor.numel():
            plain = tensor.as_subclass(torch.Tensor)
            if self._sums is not None:
                plain.addcmul_(self._sums.to(self.wide), self.draw(plain), value=self.unit)
            elif step.kind is Kind.LOGSUM:
                plain.addcmul_(1 + plain.abs(), self.draw(plain), value=self.unit)
                torch.nan_to_num_(plain, nan=math.nan, posinf=math.inf, neginf=-math.inf)
            elif step.kind in (Kind.ELEMENT, Kind.SMOOTH):
                plain.addcmul_(plain, self.draw(plain), value=self.unit)
        if written and isinstance(tensor, Lifted):
            return tensor
        declared = step.declared or _first(args) or torch.float32
        return tag(tensor.to(self.wide), declared, origin=False, clean=not step.noisy)

    def draw(self, like: torch.Tensor) -> torch.Tensor:
        """Draw values of zero mean and unit variance, bounded by the root of three.

        Where the reference orders values, equal values get equal errors, as in a kernel: a tie stays a tie.
        """
        plain = like.as_subclass(torch.Tensor)
        if not self.plan.selects or self.wide is not torch.float64:
            return torch.empty_like(plain).uniform_(-_ROOT3, _ROOT3, generator=self.generator)
        bits = plain.contiguous().view(torch.int64) * 0x1E3779B97F4A7C15 + self.salt + self.place
        bits = (bits ^ (bits >> 31)) * 0x3F58476D1CE4E5B9
        return ((bits ^ (bits >> 29)) >> 11).to(torch.float64) * (_ROOT3 * 2.0**-52)

    def _number(self) -> float:
        return float(torch.rand((), generator=self.generator, device=self.generator.device)) * 2 - 1


def _first(args: list[Any]) -> torch.dtype | None:
    return next((arg.declared for arg in flatten(args) if isinstance(arg, Lifted)), None)


def _uncertainty(func: Any, step: Step, args: list[Any]) -> torch.Tensor:
    """Return the size of the error, in units of one rounding, of a sum or a sum of products.

    The sum of the magnitudes covers any order of float32 additions. Tensor cores cut instead of rounding, once for every 16
    products, which adds up over long sums: for them a term grows with the length (the factor is half of that drift).
    """
    sums = magnitude(func, args)
    if step.kind is Kind.CONTRACT and step.name in ("mm", "bmm", "addmm", "baddbmm"):
        left, right = (arg.as_subclass(torch.Tensor) for arg in args[-2:])
        length = left.shape[-1]
        if length >= 512 and all(arg.declared in (torch.float16, torch.bfloat16) for arg in args[-2:]):  # noqa: PLR2004
            partial = left.norm(dim=-1, keepdim=True) * right.norm(dim=-2, keepdim=True) / math.sqrt(length)
            sums = sums + partial * (length / 128)
    return sums
