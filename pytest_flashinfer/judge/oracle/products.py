"""Matrix products that are written as a multiplication and a sum, or as sums of one product after the other.

`(p[..., None] * v).sum(1)` and `for j: o += p[j] * v[j]` are `p @ v`, of which a kernel may hold the operands in 16
bits. What tells them from norms, scales and rotations: one operand is broadcast along an axis that is left, both have
the axis that is added up, and one holds values of 16 bits or fewer as they were given, so that a kernel multiplies
16-bit values at all. Partial sums times scales in float32 are none of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.floats import SIXTEEN, is_narrow
from pytest_flashinfer.judge.oracle import held_operands
from pytest_flashinfer.judge.oracle.lifted import Lifted

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_flashinfer.judge.oracle.wide import Step


@dataclass(slots=True, eq=False)
class Product:
    """A multiplication that broadcasts: its step, and what holds if its result is added up.

    `low`: (position, dtype) of computed operands that a kernel may hold then, with `exact` as in a step. `sizes` of
    both operands, axis by axis of the result; 1 where one is broadcast.
    """

    step: Step
    low: tuple[tuple[int, torch.dtype], ...]
    exact: dict[int, torch.Tensor]
    sizes: tuple[list[int], list[int]]

    def hold(self, places: Collection[int]) -> torch.dtype | None:
        """Have operands at `places` disturbed from now on; return the dtype in which they may be held."""
        held = [each for each in self.low if each[0] in places and each not in self.step.low]
        self.step.low += tuple(held)
        self.step.exact |= self.exact
        self.step.noisy |= bool(held)
        return held[0][1] if held else None

    def contracts(self, axes: Collection[int]) -> bool:
        """Say whether a sum over `axes` makes a matrix product of it: both operands have them, and one has another."""
        left, right = self.sizes
        summed = {axis % len(left) for axis in axes}
        both = all(left[axis] == right[axis] for axis in summed)
        return both and any(left[axis] != right[axis] for axis in range(len(left)) if axis not in summed)

    def reused(self) -> set[int]:
        """Return the position of an operand that stands for many elements of the result, where the other one does not.

        Of an outer product, by which a state is updated, both do.
        """
        pairs = list(zip(*self.sizes, strict=True))
        less = [any(one < other for one, other in pairs), any(other < one for one, other in pairs)]
        return {less.index(True)} if sum(less) == 1 else set()


def product(step: Step, args: list[Any], result: torch.Tensor, working: torch.dtype | None) -> Product | None:
    """Return what to remember of a multiplication, if its result may be part of a matrix product in `working`."""
    pair = [arg for arg in args if isinstance(arg, Lifted)]
    if working is None or step.name != "mul" or len(pair) != 2:  # noqa: PLR2004 - two tensors
        return None
    sizes = _sizes(pair[0], result), _sizes(pair[1], result)
    if sizes[0] == sizes[1]:
        return None
    low: list[tuple[int, torch.dtype]] = []
    exact: dict[int, torch.Tensor] = {}
    for place, arg in enumerate(pair):
        computed = not arg.origin and arg.declared not in SIXTEEN and not is_narrow(arg.declared)
        if computed and of_sixteen(pair[1 - place]) and held_operands.rounds(step, place, arg, working):
            low.append((place, working))
            exact |= {place: step.exact.pop(place)} if place in step.exact else {}
    return Product(step, tuple(low), exact, sizes) if low else None


def add_up(step: Step, args: list[Any]) -> tuple[torch.dtype | None, list[Product] | None]:
    """Find products that a step adds up; return in which dtype their operands may be held, and what may be added up.

    A single product that is added to zeros may be anything, as rows of a result are; with the second it is a sum.
    """
    first = args[0] if args else None
    if step.name == "sum" and isinstance(first, Lifted) and first.product is not None and len(args) > 1 and args[1]:
        return first.product.hold((0, 1)) if first.product.contracts(args[1]) else None, None
    if step.name == "add":
        for one, total in (args[:2], args[1::-1]):
            found = one.product if isinstance(one, Lifted) else None
            if found is None or not found.reused():
                continue
            known = whole_of(total).added if isinstance(total, Lifted) else None
            if _zero(total):
                return None, [*(known or ()), found]
            if known is not None:
                held = [each.hold(each.reused()) for each in (*known, found)]
                return next(filter(None, held), None), []
    return None, None


def whole_of(arg: Lifted) -> Lifted:
    """Return the tensor that an argument shows a part of."""
    while arg.base is not None:
        arg = arg.base
    return arg


def of_sixteen(arg: Lifted) -> bool:
    """Say whether values are those of 16-bit or 8-bit floats, as they are or cast."""
    return arg.sixteen or arg.declared in SIXTEEN or is_narrow(arg.declared)


def _sizes(arg: Lifted, result: torch.Tensor) -> list[int]:
    own = [size if stride else 1 for size, stride in zip(arg.shape, arg.stride(), strict=True)]
    return [1] * (result.ndim - len(own)) + own


def _zero(arg: Any) -> bool:
    return not bool(arg.as_subclass(torch.Tensor).any()) if isinstance(arg, torch.Tensor) else bool(arg == 0)
