"""The error that an operation makes of its own, added to its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle import distribute, roundoff
from pytest_flashinfer.judge.oracle.lifted import Lifted
from pytest_flashinfer.judge.oracle.ops import Kind

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.noise_rng import Dice
    from pytest_flashinfer.judge.oracle.wide import Step

_LOST = 5.0  # sigmas that the most that a sum can lose is taken for
_LOGARITHM = 0.25  # of a rounding of what a logarithm is as large as
# Kernels find the logarithm of 1 + exp(x), where 1 is rounded too, and 2 * sigmoid(2 * x) - 1.
_OF_ONE_MORE = ("softplus", "log_sigmoid_forward", "tanh")
_VANISHING = ("exp", "exp2", "_softmax", "sigmoid", "expm1")  # may be too small to be told from 0
_LEAST = 1e-300  # of what is, in place of 0
# Interpolations find in float32 where between two elements a third lies, off by some roundings of its coordinate.
_RESAMPLED = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
_POOLS = (torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d, torch.nn.functional.max_pool3d)
_REACH, _COORDINATE = 5, 0.25  # elements that may count, and of a rounding


@dataclass(frozen=True, slots=True)
class Chance:
    """What errors are drawn with: `unit` is the rms relative one of a rounding, `narrow` as the plan says."""

    dice: Dice
    unit: float
    narrow: bool


def disturb(step: Step, args: list[Any], plain: torch.Tensor, chance: Chance, sums: torch.Tensor | None) -> None:
    """Add an operation's error to its result."""
    if step.kind is Kind.ELEMENT:
        _each(step, args, plain, chance)
        return
    length = roundoff.length(step, args, plain)
    products = step.kind is Kind.CONTRACT
    growth = roundoff.growth(length, products=products, cut=products and chance.narrow, eight=step.eight)
    terms = roundoff.terms(step, args)
    alike = roundoff.alike(terms, plain)
    swamped = roundoff.swamped(terms, plain) / (_LOST * chance.unit)
    size = sums
    if size is not None:
        size = size + plain.abs() * (growth + alike + _of_logarithm(step, args, plain))
    elif step.kind is Kind.LOGSUM:
        size = plain.abs() + (1 + growth + alike + swamped)
    if size is not None:  # where a term is infinite there is no error
        size = torch.nan_to_num(size.to(plain.dtype), nan=0.0, posinf=0.0, neginf=0.0)
        draw = chance.dice.draw(plain)
        if step.kind is Kind.SUM:
            size += swamped
        if not products:  # a whole row may share the error of a sum, which no run may miss by chance
            draw.sign_()
        plain.addcmul_(size, draw, value=chance.unit)
    elif step.kind is Kind.SMOOTH:
        _smooth(step, args, plain, chance, chance.unit * (1 + (growth if length > 1 else 0)))
    if step.name in ("_softmax", "_log_softmax") and plain.ndim:
        _share(step, args, plain, chance, alike + swamped)


def _steepest(arg: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Return by how much an interpolation of [n, c, ...] changes where a coordinate is a rounding off, at the most."""
    sizes = torch.nan_to_num(arg.as_subclass(torch.Tensor).abs(), nan=0.0, posinf=0.0, neginf=0.0)
    near = _POOLS[arg.ndim - 3](sizes, _REACH, 1, _REACH // 2)
    return torch.nn.functional.interpolate(near, size=result.shape[2:]) * (_COORDINATE * max(arg.shape[2:]))


def _of_logarithm(step: Step, args: list[Any], plain: torch.Tensor) -> torch.Tensor | float:
    """Return how far a sum of exponentials is off whose logarithm is kept, with what was taken from the exponents."""
    taken = args[0].shift if step.sums and isinstance(args[0], Lifted) else None
    if taken is None or taken.numel() != plain.numel():
        return 0.0
    return _LOGARITHM * torch.nan_to_num(taken.abs(), nan=0.0, posinf=0.0, neginf=0.0).reshape(plain.shape)


def _smooth(step: Step, args: list[Any], plain: torch.Tensor, chance: Chance, size: float) -> None:
    """Disturb values of a function; equal ones of unequal arguments in their own ways, where values are ordered.

    They are equal where they have come to 1, or are too small to be told from 0: a kernel may order the arguments.
    """
    if step.name in _OF_ONE_MORE:
        plain.add_(chance.dice.draw(plain).sign_(), alpha=chance.unit)
    if step.name in _RESAMPLED:
        plain.addcmul_(_steepest(args[0], plain), chance.dice.draw(plain), value=chance.unit)
    arg = args[0] if args else None
    if not (chance.dice.keyed and isinstance(arg, Lifted) and arg.shape == plain.shape):
        plain.mul_(chance.dice.factor(plain, size))
        return
    given = arg.as_subclass(torch.Tensor)
    draws = chance.dice.draw(given)
    plain.addcmul_(plain, draws, value=size)
    if step.name in _VANISHING:
        plain.add_(draws.abs_().mul_(_LEAST).masked_fill_((plain != 0) | ~given.isfinite(), 0.0))


def _share(step: Step, args: list[Any], plain: torch.Tensor, chance: Chance, more: torch.Tensor | float) -> None:
    """Add the error that a row shares: that of its sum, or of the sum's logarithm and the largest exponent."""
    top = roundoff.top(args[0], args[1])
    size = _LOGARITHM * top + roundoff.growth(plain.shape[args[1]]) + more
    error = chance.dice.draw(top).sign_().mul_(size).mul_(chance.unit)
    plain.add_(error if step.name == "_log_softmax" else error * plain)


def _each(step: Step, args: list[Any], plain: torch.Tensor, chance: Chance) -> None:
    """Add one rounding an element: relative to it, or to the terms of a sum that a kernel multiplies one by one."""
    size = distribute.reach(args, plain) if step.apart else None
    if size is None:
        plain.mul_(chance.dice.factor(plain, chance.unit))
    else:
        plain.addcmul_(size, chance.dice.draw(plain), value=chance.unit)
