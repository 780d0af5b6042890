"""Changes of one integer tensor that a comparison asks for: what its elements, sums, steps or counts have to be."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.data.evaluate import run
from pytest_flashinfer.inputs.constraints.solved import solved
from pytest_flashinfer.inputs.constraints.trees import (
    as_comparison,
    called,
    constant,
    demanded,
    joined,
    names_of,
    owner,
    stripped,
    sums_last,
)
from pytest_flashinfer.inputs.repair import rewrites

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from random import Random

    Op = type[ast.cmpop]
    Change = dict[str, torch.Tensor]

_TRUE: Final = {
    ast.Eq: torch.eq, ast.NotEq: torch.ne, ast.Lt: torch.lt, ast.LtE: torch.le, ast.Gt: torch.gt, ast.GtE: torch.ge,
}  # fmt: skip
_OPPOSITE: Final = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
_BEYOND: Final[dict[type[ast.cmpop], int]] = {ast.Lt: -1, ast.Gt: 1}  # the nearest integer that still compares
_EXTREMES: Final = frozenset({"max", "min", "amax", "amin"})
_UP: Final = frozenset({ast.Gt, ast.GtE})
_CASTS: Final = frozenset({"long", "int", "to", "flatten", "view", "reshape"})


class Moves:
    """The changes that make a tree true, on what `env` binds; only tensors that are `free` change."""

    def __init__(self, env: Mapping[str, Any], free: Collection[str], rng: Random) -> None:
        self.env = env
        self.free = free
        self.rng = rng

    def of(self, tree: ast.expr, where: torch.Tensor | None = None) -> Iterator[Change]:
        """Yield changes after which more of a tree is true; `where` says in which elements it has to be."""
        node = as_comparison(stripped(tree))
        for part in joined(node, ast.Or, ast.BitOr):
            whole = None if isinstance(node, ast.BoolOp) else self._false(node, where)
            yield from self.of(part, whole)
        sides = [node] if isinstance(node, ast.Compare) else []
        for left, op, right in (pair for each in sides for pair in demanded(each)):
            yield from self._neighbours(left, op, right)
            yield from self._multiple(left, op, right)
            for mine, needed, value in solved(left, op, right, self.free):
                if names_of(mine) & set(self.free):
                    yield from self._compared(mine, needed, value, where)

    def _false(self, node: ast.expr, where: torch.Tensor | None) -> torch.Tensor | None:
        value = self._value(node)
        false = ~torch.as_tensor(value, dtype=torch.bool) if value is not None else None
        return false if where is None or false is None else false & where

    def _compared(self, mine: ast.expr, op: Op, other: ast.expr, where: torch.Tensor | None) -> Iterator[Change]:
        """Yield changes of what one side is made of."""
        node, value = stripped(mine), self._value(other)
        known = torch.as_tensor(value) if isinstance(value, (bool, int, float, torch.Tensor)) else None
        if known is None or op not in _TRUE or (known.is_floating_point() and not bool(known.isfinite().all())):
            return
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and op is ast.Eq:
            yield from self._told(node, torch.as_tensor(value, dtype=torch.bool))
        if isinstance(node, ast.Call):
            yield from self._called(node, op, value, where)
        place = self._place(node)
        if place is not None:
            yield from self._ordered(place, op, value, where)

    def _multiple(self, left: ast.expr, op: Op, right: ast.expr) -> Iterator[Change]:
        """Yield multiples of a unit, as `x % unit == 0` wants them."""
        node = stripped(left)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and op is ast.Eq and constant(right) == 0:
            unit, place = self._value(node.right), self._place(node.left)
            if isinstance(unit, int) and unit > 0 and place is not None:
                old = self._old(place)
                yield from self._put(place, old - old % unit)

    def _neighbours(self, left: ast.expr, op: Op, right: ast.expr) -> Iterator[Change]:
        """Yield a tensor that rises, as `x[1:] >= x[:-1]` wants it, or `x[..., 1:]` of each row; or of unlike ones."""
        sides = [ast.unparse(stripped(side)).replace("..., ", "") for side in (left, right)]
        name = next((each for each in self.free if sides == [f"{each}[1:]", f"{each}[:-1]"]), None)
        if name is not None and op in _UP:
            yield from self._steps((name, ...), op, torch.tensor(0))
        elif name is not None and op is ast.NotEq:
            yield from self._remade((name, ...), rewrites.unlike_neighbours(self._old((name, ...)), self.rng))

    def _called(self, node: ast.Call, op: Op, value: Any, where: torch.Tensor | None) -> Iterator[Change]:
        """Yield changes of what a function of a tensor comes to."""
        word, inner = called(node)
        operand = inner if inner is not None else owner(node)
        place = None if operand is None else self._place(operand)
        if word in _CASTS and place is not None:
            yield from self._ordered(place, op, value, where)
        if word in _EXTREMES and place is not None and inner is not None:
            yield from self._extreme(place, word, op, value)
        wanted = torch.as_tensor(value)
        if word == "sum" and place is not None and sums_last(node, self._old(place).dim()):
            totals = wanted + _BEYOND.get(op, 0)
            yield from self._remade(place, rewrites.with_sums(self._old(place), totals, self.rng, by_row=inner is None))
        if word == "diff" and place is not None:
            yield from self._steps(place, op, wanted.to(torch.int64))
        if word == "bincount" and place is not None and op is ast.Eq:
            yield from self._remade(place, rewrites.with_counts(self._old(place), wanted, self._generator()))
        if word in {"numel", "nelement", "len"} and isinstance(operand, ast.Call) and called(operand)[0] == "unique":
            yield from self._different(called(operand)[1], op, value)

    def _ordered(self, place: _Place, op: Op, value: Any, where: torch.Tensor | None) -> Iterator[Change]:
        """Yield elements as a comparison with values wants them; where several will do, any of them."""
        name, index = place
        old = self._old(place)
        want = torch.as_tensor(value)
        want = (want.floor() if op in {ast.Lt, ast.LtE} else want.ceil()) if want.is_floating_point() else want
        try:
            want = torch.broadcast_to(want, old.shape).to(torch.int64)
            wrong = ~_TRUE[op](old, want)
            wrong = wrong if where is None else wrong & torch.broadcast_to(where, old.shape)
        except RuntimeError:
            return
        if not bool(wrong.any()):
            return
        end = want + (1 if op is ast.NotEq else _BEYOND.get(op, 0))
        some = torch.rand(end.shape, generator=self._generator())
        if op in {ast.Lt, ast.LtE}:
            low = torch.zeros_like(end).minimum(end)
            yield from self._put(place, torch.where(wrong, low + (some * (end - low + 1)).long(), old))
        yield from self._put(place, torch.where(wrong, end, old))
        if index is not ... and end.numel() and op is not ast.NotEq:  # what rises, say, ends there as a whole
            whole, ends = self._old((name, ...)), (int(end.min()), int(end.max()))
            yield from self._put((name, ...), whole.clamp(min=ends[1]) if op in _UP else whole.clamp(max=ends[0]))
        if op is ast.NotEq:
            present = self._old((name, ...)).flatten()
            yield from self._put(place, torch.where(wrong, present[(some * len(present)).long()], old))
            yield from self._put(place, torch.where(wrong, want - 1, old))

    def _extreme(self, place: _Place, word: str, op: Op, value: Any) -> Iterator[Change]:
        old = self._old(place)
        if not old.numel() or torch.as_tensor(value).numel() != 1:
            return
        most, end = word.endswith("max"), int(value) + _BEYOND.get(op, 0)
        beyond = op is ast.Eq or (op in _UP) is not most  # the others have to stay within
        new = (old.clamp(max=end) if most else old.clamp(min=end)) if beyond else old.clone()
        if op is ast.Eq or (op in _UP) is most:
            new.view(-1)[self.rng.randrange(new.numel())] = end
        yield from self._put(place, new)

    def _steps(self, place: _Place, op: Op, steps: torch.Tensor) -> Iterator[Change]:
        """Yield a tensor whose steps are given, or that rises by so much at the least."""
        old = self._old(place)
        if op is ast.Eq:
            yield from self._remade(place, rewrites.with_steps(old, steps))
        elif op in _UP and steps.numel() == 1:
            least = int(steps) + (op is ast.Gt)
            yield from self._remade(place, rewrites.rising(old, least, self._old((place[0], ...)), self.rng))

    def _different(self, inner: ast.expr | None, op: Op, value: Any) -> Iterator[Change]:
        node = inner.value if isinstance(inner, ast.Subscript) else inner
        place = None if node is None else self._place(node)
        if place is not None and op in {ast.Eq, ast.GtE} and torch.as_tensor(value).numel() == 1:
            yield from self._remade(place, rewrites.with_different(self._old(place), int(value), self.rng))

    def _told(self, node: ast.Compare, wanted: torch.Tensor) -> Iterator[Change]:
        """Yield changes after which a comparison is true in the elements that are `wanted`, and false elsewhere."""
        op, place, value = type(node.ops[0]), self._place(node.left), self._value(node.comparators[0])
        if place is None or value is None or op not in _OPPOSITE:
            return
        for change in [*self._ordered(place, op, value, wanted), {}]:
            rest = Moves({**self.env, **change}, self.free, self.rng)
            for other in [*rest._ordered(place, _OPPOSITE[op], value, ~wanted), {}]:
                yield {**change, **other}

    def _place(self, node: ast.expr) -> _Place | None:
        """Return the free tensor that an expression is, and which part of it."""
        node = stripped(node)
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
            node = node.func.value
        if isinstance(node, ast.Name) and node.id in self.free:
            return node.id, ...
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self.free:
            part = self._index(node.slice)
            try:
                self.env[node.value.id][part]
            except (IndexError, TypeError, RuntimeError):  # an index that is out of range, as long as it is not mended
                return None
            return node.value.id, part
        return None

    def _index(self, node: ast.expr) -> Any:
        """Return what a tensor is indexed with: the evaluator knows it in a subscript only."""
        if isinstance(node, ast.Slice):
            ends = [None if end is None else self._value(end) for end in (node.lower, node.upper, node.step)]
            return slice(*ends)
        if isinstance(node, ast.Tuple):
            parts = [self._index(each) for each in node.elts]
            return None if any(each is None for each in parts) else tuple(parts)
        return self._value(node)

    def _old(self, place: _Place) -> torch.Tensor:
        return torch.as_tensor(self.env[place[0]][place[1]], dtype=torch.int64)

    def _remade(self, place: _Place, made: Iterator[torch.Tensor]) -> Iterator[Change]:
        for each in made:
            yield from self._put(place, each)

    def _put(self, place: _Place, values: torch.Tensor) -> Iterator[Change]:
        name, index = place
        dtype = self.env[name].dtype
        new, ends = self._old((name, ...)).clone(), torch.iinfo(dtype)
        try:
            new[index] = values.clamp(ends.min, min(ends.max, torch.iinfo(torch.int64).max))
        except (IndexError, RuntimeError):  # a shape that does not fit
            return
        made = new.to(dtype)
        if not torch.equal(made, self.env[name]):
            yield {name: made}

    def _value(self, node: ast.expr) -> Any:
        return evaluated(node, self.env)

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.rng.getrandbits(48))


_Place = tuple[str, Any]


def evaluated(tree: ast.expr, env: Mapping[str, Any]) -> Any:
    """Return what a tree comes to, `None` where it cannot be computed."""
    try:
        return run(tree, env)
    except ConstraintError:
        return None
