"""Elements of one tensor that an expression picks out, in whatever shape: they are read and written where they lie."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.equation import evaluated
from pytest_flashinfer.inputs.constraints.trees import stripped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

    Change = dict[str, torch.Tensor]

_CASTS: Final = frozenset({"long", "int", "to", "cpu", "tolist"})
_SHAPES: Final = frozenset({"flatten", "view", "reshape", "unsqueeze", "squeeze", "t", "transpose", "permute"})


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where the elements of a tensor may be, as far as that is known; `apart`: no two are alike."""

    low: int
    high: int | None
    apart: bool = False

    @property
    def is_mask(self) -> bool:
        """Whether each element is set or not."""
        return (self.low, self.high) == (0, 1)


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of the tensor `name`, `at` these places of it when it is flat."""

    name: str
    at: torch.Tensor


class Tensors:
    """What `env` binds, of which only tensors that are `free` change."""

    def __init__(self, env: Mapping[str, Any], free: Mapping[str, Span], rng: Random) -> None:
        self.env = env
        self.free = free
        self.rng = rng

    def value(self, node: ast.expr) -> Any:
        """Return what an expression comes to, `None` where it cannot be computed."""
        return evaluated(node, self.env)

    def generator(self) -> torch.Generator:
        """Return random numbers for torch."""
        return torch.Generator().manual_seed(self.rng.getrandbits(48))

    def place(self, node: ast.expr) -> Place | None:
        """Return the elements of a free tensor that an expression is; `None` for an expression that is none."""
        node = stripped(node)
        if isinstance(node, ast.Name):
            return self.whole(node.id) if node.id in self.free else None
        of = _whole_of(node)
        inner = None if of is None else self.place(of)
        if inner is None:
            return None
        try:
            at = self._part(node, inner.at)
        except (IndexError, TypeError, RuntimeError):  # also an index that is out of range, as long as it is not mended
            return None
        return None if at is None else Place(inner.name, at)

    def _part(self, node: ast.expr, at: torch.Tensor) -> torch.Tensor | None:
        """Return the places that are left of `at`. Raises IndexError, TypeError or RuntimeError where none can be."""
        if isinstance(node, ast.Subscript):
            return at[self._index(node.slice)]
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        if node.func.attr in _CASTS:
            return at
        if node.func.attr not in _SHAPES:
            return None
        words = {each.arg: self._known(each.value) for each in node.keywords if each.arg}
        shaped = getattr(at, node.func.attr)(*map(self._known, node.args), **words)
        return shaped if isinstance(shaped, torch.Tensor) else None

    def _index(self, node: ast.expr) -> Any:
        """Return what a tensor is indexed with: the evaluator knows it in a subscript only."""
        if isinstance(node, ast.Slice):
            return slice(*(None if end is None else self._known(end) for end in (node.lower, node.upper, node.step)))
        if isinstance(node, ast.Tuple):
            return tuple(self._index(each) for each in node.elts)
        return None if isinstance(node, ast.Constant) and node.value is None else self._known(node)

    def _known(self, node: ast.expr) -> Any:
        value = self.value(node)
        if value is None:
            raise IndexError("cannot be computed")
        return value

    def whole(self, name: str) -> Place:
        """Return all elements of a tensor."""
        shape = self.env[name].shape
        return Place(name, torch.arange(shape.numel()).view(shape))

    def old(self, place: Place) -> torch.Tensor:
        """Return elements as they are, as numbers of 64 bits."""
        numbers = torch.as_tensor(self.env[place.name], dtype=torch.int64)
        return numbers.reshape(-1)[place.at]

    def put(self, place: Place, values: torch.Tensor) -> Iterator[Change]:
        """Yield the tensor with other elements there, unless they are the same or do not fit."""
        old = self.env[place.name]
        new = torch.as_tensor(old, dtype=torch.int64).flatten().clone()
        least, most = ends_of(old.dtype)
        try:
            new[place.at] = values.clamp(least, most)
        except (IndexError, RuntimeError):  # a shape that does not fit
            return
        made = new.to(old.dtype).view(old.shape)
        if not torch.equal(made, old):
            yield {place.name: made}

    def remade(self, place: Place, made: Iterable[torch.Tensor]) -> Iterator[Change]:
        """Yield the tensor with each of some values there."""
        for each in made:
            yield from self.put(place, each)


def _whole_of(node: ast.expr) -> ast.expr | None:
    """Return what an expression takes a part of, or puts in another shape."""
    if isinstance(node, ast.Subscript):
        return node.value
    return node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def ends_of(dtype: torch.dtype) -> tuple[int, int]:
    """Return the least and the greatest number of a dtype of integers or bools that 64 bits hold."""
    if dtype is torch.bool:
        return 0, 1
    ends = torch.iinfo(dtype)
    return ends.min, min(ends.max, torch.iinfo(torch.int64).max)
