"""How large the rounding errors of single operations are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.lifted import Lifted, flatten, whole
from pytest_flashinfer.judge.oracle.ops import Kind, magnitude

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.wide import Step

_FEW_TERMS, _SHORT = 128, 256  # terms of a sum that are not worth a look, and that may always be equal
_LONG, _LONGEST = 512, 16384  # products from which on it counts that a tensor core cuts, and up to which it is trusted
_THREAD = 1024  # products that one thread adds one by one
# Terms of a row of which the same is so: one loop over the ids of a bag may name one row again and again. Beyond, only
# careless kernels do.
_LOOP = 4096
_COARSE, _CHUNK = 1600, 128  # roundings of float32 by which sums of 14 bits err, and how many products they are for
_TINY = 1e-300
_STEPS, _ONE = 16, 1e-6  # decays of which a kernel adds up the exponents; how near to one the sum of a softmax is
_DIGITS, _SUMS = 24, 8  # binary ones of float32; how many sums torch makes at the least
_EXPONENTS = ("_softmax", "_log_softmax", "logsumexp")
_ZERO = -104.0  # of an exponent below the largest, whose exponential float32 cannot tell from zero
_HALF = 0.5  # the mantissa of powers of two
_SAMPLE, _FEW, _SAME = 64, 0.25, 1e-5


def growth(length: int, *, products: bool = False, cut: bool = False, eight: bool = False) -> float:
    """Return by how many roundings, at the scale of the noise, a sum of equal signs errs more for its length.

    Added one by one: the root of the length, and, for equal terms, whose roundings all go the same way, the length
    itself. Whether terms are equal is not looked at in short sums and in sums of products; `alike` adds to others.
    `cut`: of products that a tensor core may add up. It cuts instead of rounding, once for every 8 products on some
    cards, so that a sum of equal signs falls short by so many halves of a step, at half of its size on average.
    `eight`: of products of 8-bit floats, see `coarse`.
    """
    drift = min(length, _LONGEST) / 256 if cut and length >= _LONG else 0.0
    drift += _COARSE * min(1.0, length / _CHUNK) if eight else 0.0
    if not products:  # torch adds up what has a hundred thousand terms in eight or sixteen sums
        drift += max(length - _LONGEST, 0) / 4096
    return math.sqrt(length) / 16 + min(length, _THREAD if products else _SHORT) / 64 + drift


def alike(found: Terms | None, result: torch.Tensor) -> torch.Tensor | float:
    """Return, for long sums, what is to be added to `growth` where the terms of one are equal or nearly so.

    Where terms differ by less than the steps in which the sum can be held, all of its roundings go one way; where they
    have few values, the roundings of each value do: 3/8 of one each at the most where all are equal, for the steps grow
    with the sum, and twice as much of those that come last. `found` is what `terms` returns. The shape fits `result`.
    """
    if found is None:
        return 0.0
    sizes, axes, count = found.values.abs(), found.axes, found.count
    spread = sizes.std(dim=axes, keepdim=True) / sizes.mean(dim=axes, keepdim=True).clamp_min(_TINY)
    share = (count * 2.0**-23 / spread.clamp_min(_TINY)).clamp_max(1.0)
    if len(axes) == 1:
        share = torch.maximum(share, (2 * _tied(sizes, axes[0])).clamp_(max=1.0))
    more = share * (min(count, _LOOP) * 3 / 128 + max(count - _LOOP, 0) / 256)
    return more if more.ndim == result.ndim else more.reshape(result.shape)


def swamped(found: Terms | None, result: torch.Tensor) -> torch.Tensor | float:
    """Return how far a sum may be off, in its shape, where its largest term is there from the beginning.

    What is added to that one is rounded to its steps: terms of less than half a step are lost, others may all grow. A
    thread adds up some thousand terms one by one, and torch has eight sums at the least of what is long, of which one
    holds the largest term. Of a softmax and a logsumexp it is relative to the sum.
    """
    if found is None:
        return 0.0
    values, axes = found.values, found.axes
    top = values.abs().amax(dim=axes, keepdim=True)
    # A power of two, exactly: some versions of torch.ldexp overflow in float32.
    step = torch.nan_to_num(top / torch.frexp(top).mantissa, nan=0.0).mul_(2.0**-_DIGITS)
    step.clamp_(min=torch.finfo(values.dtype).tiny)
    steps = values / step
    apart = steps.round().sub_(steps)
    every = apart.sum(dim=axes, keepdim=True)
    lost = apart.masked_fill_(steps.abs_() > _HALF, 0.0).sum(dim=axes, keepdim=True)
    off = (lost.abs() + (every - lost).abs()) * step
    off /= min(_SUMS, max(1.0, found.count / _LOOP)) * found.over(axes)
    return off if off.ndim == result.ndim else off.reshape(result.shape)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operation `name` adds up, along which axes, and how many; of exponents it is their exponentials."""

    values: torch.Tensor
    axes: list[int]
    count: int
    name: str

    def over(self, axes: list[int]) -> torch.Tensor | float:
        """Return what the sum is divided by."""
        if self.name in _EXPONENTS:
            return self.values.sum(dim=axes, keepdim=True).clamp_min(_TINY)
        return self.count if self.name == "mean" else 1.0


def terms(step: Step, args: list[Any]) -> Terms | None:
    """Return what a sum of more than a few terms adds up; `None` for others, and for other operations."""
    arg, axis = args[0] if args else None, args[1] if len(args) > 1 else None
    if not isinstance(arg, Lifted) or step.name not in (*_EXPONENTS, "sum", "mean") or axis in (None, []):
        return None
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    count = math.prod(arg.shape[each] for each in axes)
    if count <= _FEW_TERMS or not arg.numel():
        return None
    plain = arg.as_subclass(torch.Tensor)
    values = torch.exp(plain - plain.amax(dim=axes, keepdim=True)) if step.name in _EXPONENTS else plain
    return Terms(torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), list(axes), count, step.name)


def _tied(terms: torch.Tensor, axis: int) -> torch.Tensor:
    """Return, along an axis that is kept, how much of a sum's roundings may go one way for terms that are equal.

    That is the root of the sum over all values of their squared shares: 1 for one value, 0.9 where nine in ten terms
    are equal, 1 over the root of their number for a few; 0 where a sample shows hardly any value twice.
    """
    places = torch.linspace(0, terms.shape[axis] - 1, _SAMPLE, device=terms.device).long()
    ordered = terms.index_select(axis, places).movedim(axis, -1).sort(dim=-1).values
    apart = ordered.diff(dim=-1) > _SAME * ordered[..., :-1].abs()  # noise keeps equal ones close
    value = torch.nn.functional.pad(apart.cumsum(dim=-1), (1, 0))
    shares = torch.zeros_like(ordered).scatter_add_(-1, value, torch.full_like(ordered, 1 / _SAMPLE))
    tied = shares.square_().sum(dim=-1, keepdim=True).sqrt_().movedim(-1, axis)
    return torch.where(tied >= _FEW, tied, 0.0)


def top(arg: torch.Tensor, axis: Any) -> torch.Tensor:
    """Return the largest finite magnitude along an axis, kept with size 1, of exponents that count beside the largest.

    Others may be as far off as a mask puts them, by -1e30 say: their exponentials are zero.
    """
    plain = arg.as_subclass(torch.Tensor)
    counts = plain.isfinite() & (plain - plain.amax(dim=axis, keepdim=True) >= _ZERO)
    return plain.abs().masked_fill_(~counts, 0.0).amax(dim=axis, keepdim=True)


def divides_evenly(step: Step, args: list[Any], result: torch.Tensor) -> bool:
    """Say whether an operation divides by powers of two only, or not at all.

    Other quotients may come out exact, but a kernel that multiplies by a reciprocal is off by a rounding.
    """
    if step.name in ("div", "true_divide") and len(args) > 1:
        return _power_of_two(args[1])
    if step.name in ("reciprocal", "rsqrt"):
        return _power_of_two(args[0])
    return step.name != "mean" or _power_of_two(args[0].numel() // max(1, result.numel()))


def raises_two(step: Step, args: list[Any]) -> bool:
    """Say whether an operation raises powers of two to whole exponents: every kernel finds that as it is."""
    if step.name == "exp2":
        return whole(args[0])
    raised = step.name == "pow" and isinstance(args[1], torch.Tensor)
    return raised and whole(args[1]) and _power_of_two(args[0])


def _power_of_two(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool((torch.frexp(value.as_subclass(torch.Tensor).double()).mantissa.abs() == _HALF).all())
    return abs(math.frexp(value)[0]) == _HALF


def length(step: Step, args: list[Any], result: torch.Tensor) -> int:
    """Return how many terms one element of the result sums up."""
    if step.name == "_log_softmax":
        return int(result.shape[args[1]]) if result.ndim else 1
    first = next((arg for arg in flatten(args) if isinstance(arg, Lifted)), None)
    if first is None:
        return 1
    if step.kind is Kind.CONTRACT:
        matrices = [arg for arg in args if isinstance(arg, Lifted)][-2:]
        return matrices[0].shape[-1] if matrices[0].ndim else 1
    return max(1, first.numel() // result.numel())


def decay(arg: Lifted) -> float:
    """Return how large sums of the exponents of decays get, 0 for exponents of another kind.

    Kernels that work in chunks add up the exponents of all steps and take differences of these sums, as far off as the
    sums are large. Decays have finite exponents up to 0. So have the terms of a softmax, but these are differences or
    add up to 1.
    """
    plain = arg.as_subclass(torch.Tensor)
    if arg.terms or arg.difference or not plain.numel() or not bool((plain.isfinite() & (plain <= 0)).all()):
        return 0.0
    shares = any(bool(((plain.exp().sum(dim=axis) - 1).abs() < _ONE).all()) for axis in range(plain.ndim))
    return 0.0 if shares else _STEPS * float(plain.abs().mean())


def exponentials(step: Step, args: list[Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return what a sum, or a logsumexp, adds up, in the argument's shape, and what the latter's exponents are less by.

    That has the shape but 1 along the axis; `None` for a sum.
    """
    arg = args[0].as_subclass(torch.Tensor)
    if step.name == "sum" or not arg.numel():
        return arg, None
    top = torch.nan_to_num(arg.amax(dim=args[1], keepdim=True), nan=0.0, posinf=0.0, neginf=0.0)
    return (arg - top).exp(), top


def uncertainty(func: Any, step: Step, args: list[Any]) -> torch.Tensor:
    """Return the size of the error, in units of one rounding, of a sum or a sum of products, in the result's shape.

    The sum of the magnitudes covers most orders of float32 additions. Tensor cores cut instead of rounding, once for
    every 8 or 16 products, which adds up over long sums: for those of mixed signs a term grows with the length, for
    those of equal signs see `growth`. A running sum may be found from its other end, as the whole less the rest, and
    one that leaves out its last term as one that has it, less that term: what counts is the whole.
    """
    if step.name == "cumsum":
        terms = torch.nan_to_num(args[0].as_subclass(torch.Tensor).abs(), nan=0.0, posinf=0.0)
        return terms.sum(dim=args[1], keepdim=True).expand(terms.shape)
    sums = magnitude(func, args)
    if step.kind is Kind.CONTRACT and step.name in ("mm", "bmm", "addmm", "baddbmm"):
        left, right = (arg.as_subclass(torch.Tensor) for arg in args[-2:])
        length = left.shape[-1]
        if length and step.eight:
            sums = sums + partial(left, right) * coarse(length)
        elif length >= _LONG and all(arg.declared in (torch.float16, torch.bfloat16) for arg in args[-2:]):
            sums = sums + partial(left, right) * (length / 128)
    return sums


def coarse(length: int) -> float:
    """Return by how many roundings of float32 sums of products of 8-bit floats err, beside `partial`.

    Tensor cores of some cards add them up in 14 bits, which careful kernels carry over to float32 after every 128.
    On an H200, with standard normal operands of 128 to 7168 elements, cuBLAS without `use_fast_accum` was off by up to
    1.5e-3 of that, and sums of one sign by up to 1.6e-3 of themselves: six times what is returned here.
    """
    return _COARSE * min(1.0, math.sqrt(length / _CHUNK))


def partial(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return about how large sums of products are on the way, where their signs are mixed: [..., M, N].

    `left` is [..., M, K], `right` [..., K, N].
    """
    norms: torch.Tensor = left.norm(dim=-1, keepdim=True) * right.norm(dim=-2, keepdim=True)
    return norms / math.sqrt(left.shape[-1])
