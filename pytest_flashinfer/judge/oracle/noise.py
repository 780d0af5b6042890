"""Noise runs: the lifted reference with the rounding errors that an honest kernel may make, drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.floats import is_narrow
from pytest_flashinfer.judge.oracle import distribute, held_operands, roundoff
from pytest_flashinfer.judge.oracle.disturb import Chance, disturb
from pytest_flashinfer.judge.oracle.lifted import Lifted, flatten, replace, short, tag
from pytest_flashinfer.judge.oracle.ops import Kind, Op, describe
from pytest_flashinfer.judge.oracle.wide import SUMMED, Step, WideMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.judge.oracle.lift import NoisePlan
    from pytest_flashinfer.judge.oracle.noise_rng import Dice

_FLIP = 2.0**-19  # values this close to a rounding boundary (relative) may fall on either side of it
_HELD = 0.75  # few elements depend on such sums: five sigmas of a true rounding are enough
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot")
_SHIFTED = ("_softmax", "_log_softmax", "logsumexp")
_ROUNDED = (0, 2)  # runs in which operands are rounded: as they are, and before weights are divided by their sum
_UNKNOWN = Step("unknown", Kind.SMOOTH)


class Noise(WideMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that disturbs what `plan` says is inexact.

    `unit`: rms relative error of one float32 rounding, already scaled by the caller; 0 for none. `operands`: whether
    values held in 16 bits inside are disturbed too (half a unit roundoff, rms); `strength` times as much in runs that
    look for what rounding decides.
    """

    def __init__(  # noqa: PLR0913 - what a run depends on
        self,
        wide: torch.dtype,
        plan: NoisePlan,
        dice: Dice,
        unit: float,
        *,
        operands: bool,
        number: int = 0,
        strength: float = 1.0,
    ) -> None:
        super().__init__(wide)
        self.plan = plan
        self.dice = dice
        self.unit = unit
        self.operands = operands
        self.number = number
        self.strength = strength
        self.place = 0
        self._sums: torch.Tensor | None = None
        self._held: torch.Tensor | None = None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation; where it only moves wide tensors, straight away."""
        step = self.plan.steps[self.place] if self.place < len(self.plan.steps) else _UNKNOWN
        if not step.plain or step.name != describe(func).name:
            return super().__torch_dispatch__(func, types, args, kwargs)
        self.place += 1
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            return self._tagged(result, step)
        if isinstance(result, (list, tuple)):
            done = [self._tagged(item, step) for item in result]
            return done if type(result) is list else tuple(done) if type(result) is tuple else type(result)(*done)
        return result

    @staticmethod
    def _tagged(item: Any, step: Step) -> Any:
        if not isinstance(item, torch.Tensor) or not item.is_floating_point():
            return item
        return tag(item, step.declared or torch.float32, origin=False, clean=not step.noisy)

    def rounded(self, table: torch.Tensor) -> torch.Tensor:
        """Disturb a table by the roundings of two operations; those that use it must not cancel one by chance."""
        return torch.addcmul(table, table, self.dice.draw(table).sign_(), value=2 * self.unit)

    def before(self, func: Any, op: Op, args: list[Any], asked: torch.dtype | None) -> Step:
        """Round or disturb arguments, and work out how large the result's own error is."""
        step = self._next(op, asked)
        self._sums = self._held = None
        if self.plan.loosened:
            self._settle(op, step, args)
        self._lower(func, op, step, args)
        if step.sums and self.plan.low and self.operands:
            self._sum_of_held(op, step, args, self.plan.low)
        if step.noisy and step.kind is Kind.ROUND:
            for place, arg in enumerate(args):
                if isinstance(arg, Lifted):
                    replace(op, args, place, self._pushed(arg))
        elif step.noisy and self.unit:
            self._unsettle(func, op, step, args)
        return step

    def _unsettle(self, func: Any, op: Op, step: Step, args: list[Any]) -> None:
        """Disturb arguments by what a kernel's own arithmetic does to them, and size the error of a sum."""
        if op.name in _SHIFTED:
            self._shift(op, args)
        elif step.kind is Kind.COMPARE:
            self._compared(op, args)
        elif step.kind in (Kind.SMOOTH, Kind.LOGSUM):
            self._each(op, args, self.unit)
            if step.decay:  # a whole state may share the error of one, which no run may miss by chance
                replace(op, args, 0, args[0] + step.decay * self.unit * self.dice.draw(args[0]).sign_())
        elif step.kind is Kind.ELEMENT:
            args[:] = [arg if short(arg) else arg * (1 + self.unit * self.dice.number()) for arg in args]
        elif step.kind in (Kind.CONTRACT, Kind.SUM):
            self._sums = roundoff.uncertainty(func, step, args)

    def _lower(self, func: Any, op: Op, step: Step, args: list[Any]) -> None:
        """Disturb arguments that may be held in 16 bits; in every other run, the product by what that amounts to.

        The first keeps errors that have a common cause together, the second misses no element by chance.
        """
        if self.number % 2 and self.operands and step.name in _PRODUCTS and not any(is_narrow(d) for _, d in step.low):
            held = held_operands.held_error(func, step, args) if step.low else None
            self._held = None if held is None else held * self.strength
            return
        for place, dtype in step.low:
            if place < len(args) and isinstance(args[place], Lifted):
                replace(op, args, place, self._lowered(step, place, args[place], dtype))

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
                replace(op, args, place, arg * self.dice.factor(arg, unit))

    def _settle(self, op: Op, step: Step, args: list[Any]) -> None:
        """Have integers as they are again before they decide something: only products were to find them disturbed."""
        for place in step.whole:
            if place < len(args) and isinstance(args[place], Lifted):
                replace(op, args, place, args[place].as_subclass(torch.Tensor).round())

    def _compared(self, op: Op, args: list[Any]) -> None:
        """Disturb what is compared; a value and itself, found elsewhere, stay equal: a kernel finds it once."""
        salt = self.dice.salt = self.dice.salt + 1
        for place, arg in enumerate(args):
            if isinstance(arg, Lifted):
                plain = arg.as_subclass(torch.Tensor)
                replace(op, args, place, torch.addcmul(plain, plain, self.dice.of(plain, salt), value=self.unit))

    def _pushed(self, arg: torch.Tensor, far: float = _FLIP) -> torch.Tensor:
        """Push values across near boundaries of rounding: all outwards, all inwards, then at random."""
        if self.number < 2:  # noqa: PLR2004 - one run for each direction
            return arg * (1 + far if self.number == 0 else 1 - far)
        return arg * self.dice.factor(arg, far)

    def _shift(self, op: Op, args: list[Any]) -> None:
        """Disturb exponents by the size of the largest: kernels subtract it, or multiply by log2(e), and round."""
        arg, axis = args[0].as_subclass(torch.Tensor), args[1]
        if arg.numel() and arg.ndim:
            top = roundoff.top(arg, axis).expand(arg.shape)
            replace(op, args, 0, torch.addcmul(arg, top, self.dice.draw(arg), value=self.unit))

    def _lowered(self, step: Step, place: int, arg: Lifted, dtype: torch.dtype) -> torch.Tensor:
        if is_narrow(dtype):
            near = arg if place in step.settled else self._pushed(arg)
            return near.as_subclass(torch.Tensor).to(dtype).to(self.wide)
        if not self.operands:
            return arg
        # where 8 bits come next, the rounding to 16 may decide between two of their values, far apart
        if step.declared is not None and is_narrow(step.declared) and self.number < 2:  # noqa: PLR2004 - as in `_pushed`
            return self._pushed(arg, torch.finfo(dtype).eps / 2)
        plain = arg.as_subclass(torch.Tensor)
        if self.number in _ROUNDED:  # equal operands are rounded alike, and so may be what they are multiplied by
            largest = held_operands.summed_top(step, place, plain) if self.number else 1.0
            held = (plain / largest).to(dtype).to(self.wide) * largest
            return torch.where(held.isfinite(), held, plain)
        return held_operands.held(
            step, place, plain, plain * self.dice.rounding(arg, torch.finfo(dtype).eps / 4 * self.strength)
        )

    def after(self, step: Step, args: list[Any], tensor: torch.Tensor, written: bool) -> torch.Tensor:  # noqa: FBT001
        """Add the rounding error of the operation itself."""
        if step.noisy and tensor.numel():
            plain = tensor.as_subclass(torch.Tensor)
            if self._held is not None:
                plain.addcmul_(self._held, self.dice.draw(plain).sign_())
            if self.unit:
                disturb(step, args, plain, Chance(self.dice, self.unit, self.plan.narrow), self._sums)
        centre, shift = distribute.centre(step, args, tensor), distribute.shift(step, args)
        if written and isinstance(tensor, Lifted):
            tensor.centre, tensor.shift = centre, shift
            return tensor
        declared = step.declared or _first(args) or torch.float32
        found = tag(torch.Tensor.to(tensor, self.wide), declared, origin=False, clean=not step.noisy)
        found.centre, found.shift = centre, shift
        return found

    def _finish(self, op: Op, step: Step, values: list[Any], result: Any) -> Any:
        """Add the errors of means and variances, which no run may miss by chance: all elements of a row share them."""
        if step.name in distribute.SHARED and step.noisy and self.unit:
            for variance, squares in distribute.one_pass(step, values, result, self.unit):
                variance.addcmul_(squares, self.dice.draw(squares).sign_(), value=self.unit)
            for rows, weight, sizes in distribute.of_norm(step, values, result):
                shares = self.dice.draw(sizes).sign_().mul_(sizes).mul_(self.unit)
                rows.addcmul_(rows, shares[:, :1]).addcmul_(weight, shares[:, 1:])
        return super()._finish(op, step, values, result)

    def _sum_of_held(self, op: Op, step: Step, args: list[Any], dtype: torch.dtype) -> None:
        """Hold exponentials in 16 bits before they are added up: rounded in the first run, disturbed in the others.

        Where all exponents are nearly equal, their roundings all go the same way; noise alone would not show that.
        """
        arg = args[0].as_subclass(torch.Tensor)
        unit = _HELD * torch.finfo(dtype).eps / 4 * self.strength
        terms, top = roundoff.exponentials(step, args)
        if self.number:
            terms = held_operands.held(step, SUMMED, terms, terms * self.dice.rounding(arg, unit))
        else:
            terms = terms.to(dtype).to(self.wide)
        replace(op, args, 0, terms if top is None else terms.log() + top)


def _first(args: list[Any]) -> torch.dtype | None:
    return next((arg.declared for arg in flatten(args) if isinstance(arg, Lifted)), None)
