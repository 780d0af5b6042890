"""Changes of integers and masks that a comparison asks for: what their elements, sums, steps or counts have to be."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.solved import solved
from pytest_flashinfer.inputs.constraints.trees import (
    as_comparison,
    called,
    constant,
    demanded,
    joined,
    names_of,
    owner,
    positive,
    stripped,
    sums_last,
)
from pytest_flashinfer.inputs.repair import rewrites
from pytest_flashinfer.inputs.repair.elementwise import BEYOND, DOWN, TRUE, UP, Elements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.repair.elementwise import Op
    from pytest_flashinfer.inputs.repair.places import Change, Place

_EXTREMES: Final = frozenset({"max", "min", "amax", "amin"})
_UNEVEN: Final = 4  # the power of a random number that an alternative is chosen by
_ENDS: Final = (("1:", ":-1"), ("..., 1:", "..., :-1"), (":, 1:", ":, :-1"))


class Moves(Elements):
    """The changes that make a tree true, on what `env` binds; only tensors that are `free` change."""

    def of(self, tree: ast.expr, where: torch.Tensor | None = None) -> Iterator[Change]:
        """Yield changes after which more of a tree is true; `where` says in which elements it has to be."""
        node = as_comparison(stripped(positive(tree)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from self._any_of(node, self._false(node, where))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            yield from self._in_turn([(part, where) for part in joined(node, ast.And, ast.BitAnd)])
        elif isinstance(node, ast.BoolOp):
            for part in joined(node, ast.Or, ast.BitOr):
                yield from self.of(part)
        else:
            for left, op, right in demanded(node):
                yield from self._demand(left, op, right, where)

    def _any_of(self, node: ast.BinOp, false: torch.Tensor | None) -> Iterator[Change]:
        """Yield what makes one of several true in each element where none is: any of them there, or the same one."""
        parts = joined(node, ast.Or, ast.BitOr)
        if false is not None and false.dim():
            choice = self._choices(len(parts), false)
            yield from self._in_turn(
                [*((part, false & (choice == i)) for i, part in enumerate(parts)), *((part, None) for part in parts)],
                node,
            )
        for part in parts:
            yield from self.of(part, false)

    def _choices(self, count: int, of: torch.Tensor) -> torch.Tensor:
        """Return one of so many alternatives for each element: most of a row have one, or some of it have another."""
        rows, generator = of.numel() // of.shape[-1] if of.numel() else 0, self.generator()
        weights = torch.rand((rows, count), generator=generator) ** _UNEVEN + 1e-6
        chosen = torch.multinomial(weights, of.shape[-1], replacement=True, generator=generator) if rows else weights
        return chosen.view(of.shape)

    def _in_turn(
        self, parts: list[tuple[ast.expr, torch.Tensor | None]], whole: ast.expr | None = None
    ) -> Iterator[Change]:
        """Yield the first change for each part together, on what others made; with `whole`, where that is false."""
        change: Change = {}
        for part, where in parts:
            now = Moves({**self.env, **change}, self.free, self.rng)
            left = now._false(whole, None) if whole is not None and where is None else where
            change |= next(now.of(part, left), {})
        if change:
            yield change

    def _demand(self, left: ast.expr, op: Op, right: ast.expr, where: torch.Tensor | None) -> Iterator[Change]:
        """Yield changes after which one side compares with the other."""
        yield from self._neighbours(left, op, right)
        yield from self._multiple(left, op, right)
        for mine, needed, value in solved(left, op, right, self.free):
            if names_of(mine) & self.free.keys():
                yield from self._compared(mine, needed, value, where)
        one, other = stripped(left), stripped(right)
        if isinstance(one, ast.Compare) and isinstance(other, ast.Compare) and op is ast.Eq:
            yield from self.agreed(one, other)

    def _false(self, node: ast.expr, where: torch.Tensor | None) -> torch.Tensor | None:
        value = self.value(node)
        false = ~torch.as_tensor(value, dtype=torch.bool) if value is not None else None
        return false if where is None or false is None else false & where

    def _compared(self, mine: ast.expr, op: Op, other: ast.expr, where: torch.Tensor | None) -> Iterator[Change]:
        """Yield changes of what one side is made of."""
        node, value = stripped(mine), self.value(other)
        known = torch.as_tensor(value) if isinstance(value, (bool, int, float, torch.Tensor)) else None
        if known is None or op not in TRUE or (known.is_floating_point() and not bool(known.isfinite().all())):
            return
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and op is ast.Eq:
            yield from self.told(node, torch.as_tensor(value, dtype=torch.bool))
        place = self.place(node)
        if place is not None:
            yield from self.ordered(place, op, value, where)
        elif isinstance(node, ast.Call):
            yield from self._called(node, op, value)
        elif (ranked := _sorted(node)) is not None and op is ast.Eq:
            yield from self._ranked(ranked, known)

    def _multiple(self, left: ast.expr, op: Op, right: ast.expr) -> Iterator[Change]:
        """Yield multiples of a unit, as `x % unit == 0` wants them."""
        node = stripped(left)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and op is ast.Eq and constant(right) == 0:
            unit, place = self.value(node.right), self.place(node.left)
            if isinstance(unit, int) and unit > 0 and place is not None:
                old = self.old(place)
                yield from self.put(place, old - old % unit)

    def _neighbours(self, left: ast.expr, op: Op, right: ast.expr) -> Iterator[Change]:
        """Yield a tensor that rises, as `x[1:] >= x[:-1]` wants it, or `x[..., 1:]` of each row; or of unlike ones."""
        sides = [stripped(side) for side in (left, right)]
        if not all(isinstance(side, ast.Subscript) for side in sides):
            return
        tail, head = (each for each in sides if isinstance(each, ast.Subscript))
        ends = tuple(ast.unparse(each.slice).strip("()") for each in (tail, head))
        if ends not in _ENDS or ast.unparse(tail.value) != ast.unparse(head.value):
            return
        place = self.place(tail.value)
        if place is not None and op is ast.NotEq:
            yield from self.remade(place, rewrites.unlike_neighbours(self.old(place), self.rng))
        else:
            yield from self._steps(tail.value, op, torch.tensor(0))

    def _called(self, node: ast.Call, op: Op, value: Any) -> Iterator[Change]:
        """Yield changes of what a function of a tensor comes to."""
        word, inner = called(node)
        operand = inner if inner is not None else owner(node)
        place, wanted = None if operand is None else self.place(operand), torch.as_tensor(value)
        if word in _EXTREMES and place is not None and inner is not None:
            yield from self._extreme(place, word, op, value)
        if word == "sum" and operand is not None:
            yield from self._summed(node, operand, wanted + BEYOND.get(op, 0), by_row=inner is None)
        if word == "diff" and operand is not None:
            yield from self._steps(operand, op, wanted.to(torch.int64))
        if word == "bincount" and place is not None and op is ast.Eq:
            yield from self.remade(place, rewrites.with_counts(self.old(place), wanted, self.rng))
        if word == "unique" and place is not None and op is ast.Eq:
            yield from self.remade(place, rewrites.with_all_of(self.old(place), wanted, self.rng))
        if word in {"numel", "nelement", "len"} and isinstance(operand, ast.Call) and called(operand)[0] == "unique":
            yield from self._different(called(operand)[1], op, value)

    def _summed(self, node: ast.Call, operand: ast.expr, totals: torch.Tensor, *, by_row: bool) -> Iterator[Change]:
        """Yield elements of these sums: of a comparison, as many of which it is true."""
        bare, place = stripped(operand), self.place(operand)
        if isinstance(bare, ast.Compare) and len(bare.ops) == 1:
            true = self.value(bare)
            if isinstance(true, torch.Tensor) and true.dim() and sums_last(node, true.dim()):
                for wanted in rewrites.with_marks(true.long(), totals, self.rng, by_row=by_row, near=True):
                    yield from self.told(bare, wanted.bool())
        elif place is not None and sums_last(node, place.at.dim()):
            old, span = self.old(place), self.free[place.name]
            if span.is_mask:
                yield from self.remade(place, rewrites.with_marks(old, totals, self.rng, by_row=by_row))
            else:
                yield from self.remade(place, rewrites.with_sums(old, totals, self.rng, span.high, by_row=by_row))

    def _ranked(self, inner: ast.expr, wanted: torch.Tensor) -> Iterator[Change]:
        """Yield elements in any order that are these when sorted; where some are picked, of as many entries as needed.

        In `x[x >= 0].sort().values` those picked out are the entries in use.
        """
        place = self.place(inner)
        if place is None:
            return
        if wanted.shape != place.at.shape and isinstance(inner, ast.Subscript):
            whole, count = self.place(inner.value), wanted.numel()
            if whole is None or count > whole.at.numel() or not self._tells_marks(inner.slice):
                return
            old = torch.full(whole.at.shape, -1).flatten()
            old[torch.randperm(len(old), generator=self.generator())[:count]] = wanted.flatten().to(torch.int64)
            yield from self.put(whole, old.view(whole.at.shape))
        yield from self.remade(place, rewrites.in_any_order(self.old(place), wanted, self.rng))

    def _tells_marks(self, index: ast.expr) -> bool:
        return isinstance(index, ast.Compare) and self.place(index.left) is not None

    def _extreme(self, place: Place, word: str, op: Op, value: Any) -> Iterator[Change]:
        old = self.old(place)
        if not old.numel() or torch.as_tensor(value).numel() != 1:
            return
        most, end = word.endswith("max"), int(value) + BEYOND.get(op, 0)
        beyond = op is ast.Eq or (op in UP) is not most  # the others have to stay within
        new = (old.clamp(max=end) if most else old.clamp(min=end)) if beyond else old.clone()
        if op is ast.Eq or (op in UP) is most:
            new.view(-1)[self.rng.randrange(new.numel())] = end
        yield from self.put(place, new)

    def _steps(self, operand: ast.expr, op: Op, steps: torch.Tensor) -> Iterator[Change]:
        """Yield a tensor whose steps are given, or that rises or falls by so much at the least.

        Of a comparison, the elements of which it is true come last or first.
        """
        node, place = stripped(operand), self.place(operand)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and op in UP | DOWN:
            yield from self.moved_up(node, last=op in UP)
        if place is None:
            return
        old, every = self.old(place), self.old(self.whole(place.name))
        if op is ast.Eq:
            yield from self.remade(place, rewrites.with_steps(old, steps))
        elif op in UP and steps.numel() == 1:
            yield from self.remade(place, rewrites.rising(old, int(steps) + (op is ast.Gt), every, self.rng))
        elif op in DOWN and steps.numel() == 1:
            made = rewrites.rising(-old, (op is ast.Lt) - int(steps), -every, self.rng)
            yield from self.remade(place, (-each for each in made))

    def _different(self, inner: ast.expr | None, op: Op, value: Any) -> Iterator[Change]:
        node = inner.value if isinstance(inner, ast.Subscript) else inner
        place = None if node is None else self.place(node)
        if place is not None and op in {ast.Eq, ast.GtE} and torch.as_tensor(value).numel() == 1:
            yield from self.remade(place, rewrites.with_different(self.old(place), int(value), self.rng))


def _sorted(node: ast.expr) -> ast.expr | None:
    """Return `x` of `x.sort().values` and `torch.sort(x)[0]`."""
    first = isinstance(node, ast.Subscript) and constant(node.slice) == 0
    if not (first or (isinstance(node, ast.Attribute) and node.attr == "values")):
        return None
    inner = node.value if isinstance(node, (ast.Subscript, ast.Attribute)) else node
    word, operand = called(inner) if isinstance(inner, ast.Call) else ("", None)
    return stripped(operand) if word == "sort" and operand is not None else None
