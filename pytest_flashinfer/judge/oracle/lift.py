"""The truth: a reference's operations in float64, quantisations kept, and a plan for the noise runs written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_flashinfer.judge.floats import SIXTEEN, is_narrow, representable
from pytest_flashinfer.judge.oracle import distribute, held_operands, roundoff
from pytest_flashinfer.judge.oracle.bits import certain
from pytest_flashinfer.judge.oracle.lifted import (
    Lifted,
    flatten,
    pass_on,
    promote,
    replace,
    short,
    tag,
    true_dtype,
    whole,
)
from pytest_flashinfer.judge.oracle.ops import Kind, Op, magnitude
from pytest_flashinfer.judge.oracle.products import Product, add_up, of_sixteen, product, whole_of
from pytest_flashinfer.judge.oracle.wide import SUMMED, LiftError, Step, WideMode

_LIMIT = 2.0**24  # integers up to here are exact in float32
_LIMIT_OF_EIGHT = 2.0**13  # and in the sums of 14 bits in which some cards add up products of 8-bit floats
_CASTS = ("_to_copy", "copy")
_READS = (*_CASTS, "_local_scalar_dense")  # of what moves values, all that may take them to another dtype


@dataclass(slots=True)
class NoisePlan:
    """All steps of one lifted run, and whether values are ordered anywhere in it."""

    steps: list[Step] = field(default_factory=list)
    selects: bool = False
    decides: bool = False  # orders or rounds to a grid: many runs must look for near-ties
    low: torch.dtype | None = None  # the 16-bit dtype that something may be rounded to inside
    narrow: bool = False  # inputs or outputs have 16 bits or fewer: a kernel may leave products to tensor cores
    elements: int = 0  # of the floating results of all steps
    decay: float = 0.0  # the largest of any step
    loosened: bool = False  # some of the steps that are noisy are exact by themselves


class Lift(WideMode):  # type: ignore[no-untyped-call]
    """The truth: operations run wide, quantisations to 8 bits kept, and a plan for the noise runs written down."""

    def __init__(self, wide: torch.dtype, working: torch.dtype | None) -> None:
        super().__init__(wide)
        self.working = working  # the 16-bit dtype in which a kernel may hold the operands of a contraction
        self.plan = NoisePlan()
        self.viewing = False  # whether the present operation shows its argument in another shape
        self.added: list[Product] | None = None  # what its result may be the sum of

    def before(self, func: Any, op: Op, args: list[Any], asked: torch.dtype | None) -> Step:
        """Decide how the result rounds and which arguments are rounded on the way in. Raises LiftError."""
        floats = [arg for arg in flatten(args) if isinstance(arg, Lifted)]
        if op.name == "copy":
            asked = args[0].dtype
        step = Step(op.name, op.kind, asked if asked is not None and asked.is_floating_point else None)
        if step.declared is None:
            step.declared = promote(floats)
        if op.bits and floats and args[1] != floats[0].declared and not certain(floats[0], self.wide):
            raise LiftError(f"the bits of a {floats[0].declared} tensor are viewed as {args[1]}")
        self.plan.steps.append(step)
        self.plan.selects |= op.selects
        quantises = asked is not None and is_narrow(asked) and any(arg.declared != asked for arg in floats)
        self.plan.decides |= op.selects or op.kind is Kind.ROUND or quantises
        if op.name in _CASTS and asked is not None and not asked.is_floating_point and floats:
            step.kind = Kind.ROUND
        self.viewing = op.view
        self._cross(op, floats)
        self._lower(op, step, args)
        step.fuzzy = not all(arg.settled for arg in floats)
        if op.name in ("logsumexp", "sum") and floats and not floats[0].origin:
            step.sums = op.name == "logsumexp" or floats[0].exponential
            if step.sums and self.working:
                held_operands.rounds(step, SUMMED, roundoff.exponentials(step, args)[0], self.working)
        if op.name in ("exp", "exp2") and floats:
            step.decay = roundoff.decay(floats[0])
            self.plan.decay = max(self.plan.decay, step.decay)
        step.eight = step.kind is Kind.CONTRACT and all(map(of_eight, args[-2:]))
        step.noisy = step.fuzzy or bool(step.low) or not self._stays_exact(func, step, args)
        step.whole = wholes(op, step, args)
        step.plain = op.simple and not self.widened and not step.low and not step.whole
        if step.noisy or step.kind is not Kind.SMOOTH:  # sums of whole exponents are exact
            self.plan.loosened |= distribute.mark(step, args)
        held, self.added = add_up(step, args)
        self.plan.low = held or self.plan.low
        return step

    def _cross(self, op: Op, floats: list[Lifted]) -> None:
        """Follow values that leave torch, and refuse those that come back as other ones: how they round is not seen."""
        if op.name == "_local_scalar_dense" and floats:
            self.outside.leaves(floats[0])
        if op.name == "lift_fresh" and self.widened and self.outside.made(floats[0]):
            raise LiftError("values leave torch and come back as other ones")

    def _lower(self, op: Op, step: Step, args: list[Any]) -> None:
        """Find arguments held in fewer bits; an 8-bit one is rounded here, because the reference means it."""
        if step.kind in (Kind.MOVE, Kind.SELECT) and step.name not in _READS:
            return
        places = [place for place, arg in enumerate(args) if isinstance(arg, Lifted)]
        if step.name in _CASTS and step.kind is Kind.MOVE:  # what only changes its place is not rounded yet
            places = [each for each in places if each not in op.writes and args[each].declared is not step.declared]
        products = step.kind is Kind.CONTRACT or (self.contracting and step.name == "mul")
        strict = not products or all(args[place].origin for place in places)
        low, settled = [], []
        for place in places:
            arg = args[place]
            if arg.settled:
                settled.append(place)
            if is_narrow(arg.declared) and not arg.origin:
                replace(op, args, place, torch.Tensor.to(arg, arg.declared).to(self.wide))
                low.append((place, arg.declared))
            elif arg.declared in SIXTEEN and not arg.origin and held_operands.rounds(step, place, arg, arg.declared):
                low.append((place, arg.declared))
            elif not strict and self.working and arg.declared not in SIXTEEN:
                low += [(place, self.working)] if held_operands.rounds(step, place, arg, self.working) else []
        step.low, step.settled = tuple(low), tuple(settled)
        self.plan.low = next((dtype for _, dtype in low if not is_narrow(dtype)), self.plan.low)

    def _stays_exact(self, func: Any, step: Step, args: list[Any]) -> bool:
        """Say whether float32 arithmetic gives this result without rounding, as far as the arguments tell."""
        if step.kind in (Kind.MOVE, Kind.SELECT, Kind.ROUND, Kind.COMPARE):
            return True
        if step.kind in (Kind.SMOOTH, Kind.LOGSUM):
            return roundoff.raises_two(step, args)
        if step.kind is Kind.ELEMENT:
            return all(short(arg) for arg in args)  # the result is looked at in `after`
        floats = [arg for arg in args if isinstance(arg, Lifted)]
        if not floats:  # of integers, which may be written into
            return True
        if not all(map(whole, floats)):
            return False
        sums = magnitude(func, args)
        return sums.numel() == 0 or bool(sums.amax() <= (_LIMIT_OF_EIGHT if step.eight else _LIMIT))

    def after(self, step: Step, args: list[Any], tensor: torch.Tensor, written: bool) -> torch.Tensor:  # noqa: FBT001
        """Tag a result with its declared dtype and history."""
        self.plan.elements += tensor.numel()
        exact = not step.noisy
        if exact and step.kind in (Kind.ELEMENT, Kind.SUM, Kind.SMOOTH):
            exact = roundoff.divides_evenly(step, args, tensor) and representable(tensor, torch.float32)
            exact = exact and not distribute.vanishes(step, args, tensor)
        step.noisy = not exact
        floats = [arg for arg in flatten(args) if isinstance(arg, Lifted)]
        clean = exact and all(arg.clean for arg in floats)
        signed = step.name == "copysign" and isinstance(args[0], Lifted) and args[0].settled  # of one sign or the other
        integral = not clean and (step.kind is Kind.ROUND or exact or signed) and whole(tensor)
        terms = distribute.terms(step, args, floats, tensor)
        if written and isinstance(tensor, Lifted):
            tensor.origin, tensor.clean, tensor.exponential, tensor.integral = False, clean, False, integral
            tensor.follows, tensor.terms, tensor.product = exact and not clean, terms, None
            if self.added is not None:
                whole_of(tensor).added = self.added
            pass_on(tensor)
            return tensor
        origin = step.kind is Kind.MOVE and bool(floats) and all(arg.origin and keeps(arg, step) for arg in floats)
        if step.declared is None:
            step.declared = true_dtype(tensor) if true_dtype(tensor) is not self.wide else torch.float32
        origin |= step.name == "view" and not floats and is_narrow(step.declared)  # bytes that are given as integers
        lifted = tag(torch.Tensor.to(tensor, self.wide), step.declared, origin=origin, clean=clean)
        lifted.exponential, lifted.integral, lifted.terms = step.name in ("exp", "exp2"), integral, terms
        moved = step.kind is Kind.MOVE and any(arg.difference for arg in floats)
        lifted.follows = exact and not clean
        lifted.difference = moved or step.name in ("sub", "rsub")
        lifted.eight = step.kind is Kind.MOVE and bool(floats) and all(map(of_eight, floats))
        lifted.sixteen = step.kind is Kind.MOVE and bool(floats) and all(map(of_sixteen, floats))
        lifted.product, lifted.added = product(step, args, lifted, self.working), self.added
        shown = floats[0] if self.viewing and floats else None
        if lifted is not shown:  # as what is made of Python numbers is shown as it is
            lifted.base = shown
        return lifted


def wholes(op: Op, step: Step, args: list[Any]) -> tuple[int, ...]:
    """Return the places of integers that something is decided by, which none of a kernel's roundings can have moved."""
    decides = op.selects or step.kind in (Kind.ROUND, Kind.COMPARE) or op.name == "_local_scalar_dense"
    if not decides:
        return ()
    settled = ((place, arg) for place, arg in enumerate(args) if isinstance(arg, Lifted) and arg.settled)
    return tuple(place for place, arg in settled if arg.integral or (not arg.origin and whole(arg)))


def of_eight(arg: Any) -> bool:
    """Say whether values are those of 8-bit floats, as they are or cast."""
    return isinstance(arg, Lifted) and (arg.eight or is_narrow(arg.declared))


def keeps(arg: Lifted, step: Step) -> bool:
    """Say whether the result's dtype holds every value of the argument's."""
    if step.declared is None or step.declared == arg.declared:
        return True
    if is_narrow(step.declared):
        return False
    return is_narrow(arg.declared) or torch.promote_types(arg.declared, step.declared) == step.declared
