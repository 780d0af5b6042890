"""Products that a kernel may distribute over a sum: (x - m) * s is also x * s - m * s, and rounds as that does.

What is lost then is relative to the terms, not to what is left of them. A kernel gains by it where one of them is
broadcast, as the mean of a row is: that one is multiplied once, and the rest is one fused multiply-add an element.
Exponentials multiply too, by log2(e). Of squares that are added up, it makes a variance that is found in one pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.lifted import Lifted, whole
from pytest_flashinfer.judge.oracle.ops import Kind
from pytest_flashinfer.judge.oracle.roundoff import growth

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.wide import Step

_TERMS = 4  # sums within sums that are told apart
_SUMS = ("add", "sub", "rsub")
_PRODUCTS = ("mul", "div", "true_divide", "square", "pow", "exp", "exp2", "sigmoid", "tanh", "silu", "softplus")
_TOTALS = ("sum", "mean")
_VARIANCES = ("var", "var_mean", "std", "std_mean")
_NORMS = {"native_layer_norm": 2, "native_group_norm": 1}  # and where their weight is
SHARED = frozenset((*_TOTALS, *_VARIANCES, *_NORMS))  # steps whose results may have errors that rows share


def mark(step: Step, args: list[Any]) -> bool:
    """Have the sums that a step multiplies round term by term from now on; say whether some are exact as such.

    So do matrix products of integers, of which a kernel may scale an operand first. What only shifts them rounds none.
    """
    if (step.kind is not Kind.CONTRACT and step.name not in _PRODUCTS) or _shifts(step, args):
        return False
    factors = args[:1] if step.name in ("div", "true_divide") else args
    sums = [term for arg in factors if isinstance(arg, Lifted) for term in arg.terms]
    exact = not all(term.noisy for term in sums)
    for term in sums:
        term.apart |= term.kind is not Kind.CONTRACT
        term.noisy = True
    return exact


def _shifts(step: Step, args: list[Any]) -> bool:
    """Say whether a step multiplies by a power of two, or divides by one."""
    numbers = [arg for arg in args[:2] if isinstance(arg, (int, float))]
    return step.name in ("mul", "div") and any(math.frexp(abs(number))[0] == 0.5 for number in numbers)  # noqa: PLR2004


def vanishes(step: Step, args: list[Any], result: torch.Tensor) -> bool:
    """Say whether a sum leaves nothing of its terms, as b - a where both are drawn alike, and only by that is exact.

    In a + (b - a) * w a kernel rounds a * (1 - w) and b * w. Whole numbers are as exact there.
    """
    floats = [arg.as_subclass(torch.Tensor) for arg in args[:2] if isinstance(arg, Lifted)]
    if step.name not in _SUMS or len(floats) < 2 or bool(result.as_subclass(torch.Tensor).any()):  # noqa: PLR2004
        return False
    return not all(map(whole, floats))


def terms(step: Step, args: list[Any], floats: list[Lifted], result: torch.Tensor) -> tuple[Step, ...]:
    """Return the sums with a broadcast term that a result consists of, where no product has come between that rounds.

    Matrix products of integers, which are exact, are such sums.
    """
    if step.kind is Kind.CONTRACT:
        return () if step.noisy else (step,)
    if step.kind is not Kind.MOVE and step.name not in _SUMS and not _shifts(step, args):
        return ()
    own = (step,) if step.name in _SUMS and broadcast(args, result) is not None else ()
    return (*own, *(term for arg in floats for term in arg.terms))[:_TERMS]


def broadcast(args: list[Any], result: torch.Tensor) -> torch.Tensor | float | None:
    """Return the term of a sum of two that stands for many elements of the result, in its own shape, or `None`."""
    for arg in args[1::-1]:
        if isinstance(arg, Lifted) and (arg.shape != result.shape or 0 in arg.stride()):
            return arg.as_subclass(torch.Tensor)
        if isinstance(arg, (int, float)):
            return arg
    return None


def reach(args: list[Any], result: torch.Tensor) -> torch.Tensor | None:
    """Return how large the terms of a sum with a broadcast one are (at least half), whatever is left in the result.

    It has the shape of the result; `None` where no term is broadcast.

    It is finite, so that results which are not stay what they are, also where it is multiplied by a number of the dice
    before anything else, as a card does.
    """
    term, most = broadcast(args, result), torch.finfo(result.dtype).max / 4
    if isinstance(term, torch.Tensor):
        return result.abs().clamp_(min=term.abs(), max=term.new_tensor(most))
    return None if term is None else result.abs().clamp_(min=abs(term), max=most)


def centre(step: Step, args: list[Any], result: torch.Tensor) -> torch.Tensor | float | None:
    """Return what a result is a difference from, or the square of one: a number, or a tensor that broadcasts to it."""
    if step.apart:
        return broadcast(args, result)
    return args[0].centre if args and isinstance(args[0], Lifted) and _squares(step, args) else None


def shift(step: Step, args: list[Any]) -> torch.Tensor | None:
    """Return what has been taken from the exponents of exponentials, in a shape that broadcasts to theirs."""
    taken = args[0].centre if step.name in ("exp", "exp2") and isinstance(args[0], Lifted) else None
    return taken if isinstance(taken, torch.Tensor) else None


def _squares(step: Step, args: list[Any]) -> bool:
    if step.name == "mul":
        return args[0] is args[1]
    return step.name == "square" or (step.name == "pow" and isinstance(args[1], (int, float)) and args[1] == 2)  # noqa: PLR2004


def one_pass(step: Step, args: list[Any], results: Any, unit: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a variance or sum of squared differences, and in its shape the squares that a kernel may subtract for it.

    That is the mean's, and that of the first element less the mean, where a kernel shifts a row by that element. Of a
    deviation, the root of that, what an error of `unit` times the squares makes of it at the most. Nothing where a step
    has none of these among its results.
    """
    of_squares = step.name in _TOTALS and getattr(args[0], "centre", None) is not None
    if not of_squares and (step.name not in _VARIANCES or isinstance(results, tuple) != step.name.endswith("_mean")):
        return []
    plain = args[0].as_subclass(torch.Tensor)
    result = (results[0] if isinstance(results, tuple) else results).as_subclass(torch.Tensor)
    axes = args[1] if len(args) > 1 else None
    if of_squares:
        squares = torch.as_tensor(args[0].centre, dtype=plain.dtype, device=plain.device).square()
        if squares.ndim == plain.ndim and _first(squares, axes).numel() == squares.numel():
            squares = squares + _first(plain, axes)
        if squares.ndim != plain.ndim or squares.shape != result.shape:
            squares = squares.expand(plain.shape).mean(dim=axes)
        if step.name == "sum":
            squares = squares * (plain.numel() // max(1, result.numel()))
    else:
        means = plain.mean(dim=axes)
        squares = means.square() + (_first(plain, axes).reshape(means.shape) - means).square()
    squares = torch.nan_to_num(squares, nan=0.0, posinf=0.0, neginf=0.0).reshape(result.shape)
    if step.name.startswith("std"):
        squares = torch.minimum(squares / (2 * result), (squares / unit).sqrt()).nan_to_num_(nan=0.0)
    return [(result, squares)]


def _first(plain: torch.Tensor, axes: Any) -> torch.Tensor:
    """Return the first element along axes, which are kept."""
    for axis in range(plain.ndim) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes:
        plain = plain.narrow(axis, 0, min(1, plain.shape[axis]))
    return plain


def of_norm(step: Step, args: list[Any], results: Any) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return how the errors of a fused norm's mean and variance move its result; nothing for what is no such norm.

    Those are the rows of the result [rows, n], the weight, which broadcasts to them, and two sizes for each row
    [rows, 2]: of the variance's error, relative, and of the mean's. What elements do not share comes from inputs that
    are disturbed.
    """
    place = _NORMS.get(step.name)
    if place is None or isinstance(results, torch.Tensor) or not (results[0].numel() and results[0].is_contiguous()):
        return []
    out, mean, rstd = (each.as_subclass(torch.Tensor) for each in results)
    rows, far = out.view(mean.numel(), -1), (mean * rstd).abs().reshape(-1, 1)
    weight = torch.ones_like(far) if args[place] is None else args[place].as_subclass(torch.Tensor)
    if step.name == "native_group_norm" and args[place] is not None:
        weight = weight.view(-1, *[1] * (out.ndim - 2)).expand_as(out).reshape(rows.shape)
    elif args[place] is not None:
        weight = weight.reshape(1, -1)
    sizes = torch.cat([far.square() / 2, far * (1 + growth(rows.shape[1]))], dim=1)
    return [(rows, weight, sizes)]
