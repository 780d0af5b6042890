"""Changes of single elements: each becomes what a comparison asks for, or what makes it true here and false there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.trees import OPPOSITE
from pytest_flashinfer.inputs.repair.places import Place, Tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.repair.places import Change

Op = type[ast.cmpop]
TRUE: Final = {
    ast.Eq: torch.eq, ast.NotEq: torch.ne, ast.Lt: torch.lt, ast.LtE: torch.le, ast.Gt: torch.gt, ast.GtE: torch.ge,
}  # fmt: skip
BEYOND: Final[dict[type[ast.cmpop], int]] = {ast.Lt: -1, ast.Gt: 1}  # the nearest integer that still compares
UP: Final = frozenset({ast.Gt, ast.GtE})
DOWN: Final = frozenset({ast.Lt, ast.LtE})
_SPARE: Final = 64  # numbers that are looked at besides as many as a tensor has, for some that do not occur


class Elements(Tensors):
    """Changes of elements, one by one."""

    def ordered(self, place: Place, op: Op, value: Any, where: torch.Tensor | None) -> Iterator[Change]:
        """Yield elements as a comparison with values wants them; where several will do, any of them.

        Elements that cannot be what they should stay as they are.
        """
        old, want = self.old(place), torch.as_tensor(value)
        want = (want.floor() if op in DOWN else want.ceil()) if want.is_floating_point() else want
        try:
            want = torch.broadcast_to(want, old.shape).to(torch.int64)
            wrong = ~TRUE[op](old, want)
            wrong = wrong if where is None else wrong & torch.broadcast_to(where, old.shape)
        except RuntimeError:
            return
        span, end = self.free[place.name], want + (1 if op is ast.NotEq else BEYOND.get(op, 0))
        if op in UP and span.high is not None:
            wrong &= end <= span.high
        if not bool(wrong.any()):
            return
        if span.apart and op is not ast.Eq:
            yield from self._unused(place, wrong, op, end)
        some = torch.rand(end.shape, generator=self.generator())
        if op in DOWN or (op in UP and span.high is not None):
            low, high = (torch.zeros_like(end).minimum(end), end) if op in DOWN else (end, end.clamp(min=span.high))
            yield from self.put(place, torch.where(wrong, low + (some * (high - low + 1)).long(), old))
        yield from self.put(place, torch.where(wrong, end, old))
        whole = self.whole(place.name)
        if old.numel() < whole.at.numel() and op is not ast.NotEq:  # what rises, say, ends there as a whole
            ends = int(end.min()), int(end.max())
            yield from self.put(whole, self.old(whole).clamp(*((ends[1], None) if op in UP else (None, ends[0]))))
        if op is ast.NotEq:
            present = self.old(whole).flatten()
            yield from self.put(place, torch.where(wrong, present[(some * len(present)).long()], old))
            yield from self.put(place, torch.where(wrong, want - 1, old))

    def _unused(self, place: Place, wrong: torch.Tensor, op: Op, end: torch.Tensor) -> Iterator[Change]:
        """Yield numbers that do not occur yet in place of what is wrong."""
        span, whole = self.free[place.name], self.old(self.whole(place.name))
        count, present = int(wrong.sum()), set(whole.flatten().tolist())
        low, high = max(0, int(end.max()) if op in UP else 0), span.high if span.high is not None else whole.numel()
        high = min(high, int(end.min())) if op in DOWN else high
        some = [n for n in range(low, min(high + 1, low + 2 * whole.numel() + _SPARE)) if n not in present]
        if len(some) >= count:
            new = self.old(place).clone()
            new[wrong] = torch.tensor(self.rng.sample(some, count), dtype=torch.int64)
            yield from self.put(place, new)

    def told(self, node: ast.Compare, wanted: torch.Tensor) -> Iterator[Change]:
        """Yield changes after which a comparison is true in the elements that are `wanted`, and false elsewhere."""
        op, place, value = type(node.ops[0]), self.place(node.left), self.value(node.comparators[0])
        if place is None or value is None or op not in OPPOSITE:
            return
        for change in [*self.ordered(place, op, value, wanted), {}]:
            rest = Elements({**self.env, **change}, self.free, self.rng)
            for other in [*rest.ordered(place, OPPOSITE[op], value, ~wanted), {}]:
                if {**change, **other}:
                    yield {**change, **other}

    def agreed(self, one: ast.Compare, other: ast.Compare) -> Iterator[Change]:
        """Yield changes of two tensors after which a comparison of each is true in the same elements: in any of both.

        So entries are marked in both tensors that are marked in one, where no ids are left to put in their place.
        """
        sides = [self.value(each) for each in (one, other)]
        shaped = [isinstance(side, torch.Tensor) and side.dtype is torch.bool for side in sides]
        if not all(shaped) or sides[0].shape != sides[1].shape:
            return
        for wanted in (sides[0] | sides[1], sides[0] & sides[1]):
            first = next(self.told(one, wanted), {})
            second = next(Elements({**self.env, **first}, self.free, self.rng).told(other, wanted), {})
            if first or second:
                yield {**first, **second}

    def moved_up(self, node: ast.Compare, *, last: bool) -> Iterator[Change]:
        """Yield rows in which the elements of which a comparison is true come first, or `last`, in their order."""
        place, true = self.place(node.left), self.value(node)
        if place is None or not isinstance(true, torch.Tensor) or true.shape != place.at.shape or not true.dim():
            return
        order = (true if last else ~true).to(torch.int8).argsort(dim=-1, stable=True)
        yield from self.put(place, self.old(place).gather(-1, order))
