"""Which sizes of an axis are worth trying, how many elements they cost, and where a small case starts."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.floats.values import family_names
from pytest_flashinfer.inputs.integers.structure import structures
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.roles.axis_roles import Axes
from pytest_flashinfer.inputs.scalars.listed import usual_and_others
from pytest_flashinfer.inputs.sizes.axes import shape_of
from pytest_flashinfer.inputs.sizes.coupled_sizes import settle

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.recipe import Scalar

# Tails of 2 to 1024 wide tiles, primes, and bounds that kernels fix: first those that show most.
SIZES: Final = (1, 2, 3, 5, 8, 9, 10, 17, 33, 67, 129, 257)
MORE_SIZES: Final = (
    4, 6, 7, 13, 15, 16, 18, 31, 32, 63, 64, 65, 66, 127, 128, 130, 131, 155, 255, 256, 511, 512, 513, 1023, 1024, 1025,
)  # fmt: skip
DEFAULT_ELEMENTS: Final = 1 << 21
_REMEMBERED: Final = 4096  # settled sizes
_SHARES: Final = (1, 0.75, 0.5, 0.35, 0.25, 0.15, 0)  # of the base case, where memory is short


@dataclass(frozen=True)
class Grid(Axes):
    """The sizes to try for one definition.

    `listed` are the sizes and scalars of its workloads; a case may have `budget` elements in all, inputs and outputs,
    or what the smallest case has, if that is more.
    """

    listed: tuple[Mapping[str, Scalar], ...]
    max_elements: int
    _settled: dict[tuple[Any, ...], dict[str, int]] = field(default_factory=dict, repr=False)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The families of float values for this definition."""
        return family_names(self.contract, self.plan)

    @cached_property
    def structures(self) -> tuple[str, ...]:
        """The structures of index tensors for this definition."""
        return structures(self.contract, self.plan)

    @cached_property
    def optional(self) -> tuple[str, ...]:
        """The inputs that may be left out."""
        may_go = self.contract.droppable - self.contract.scratch
        return tuple(name for name, trees in self.contract.dims.items() if trees and name in may_go)

    @cached_property
    def scalars(self) -> dict[str, tuple[Scalar, ...]]:
        """Other values of scalar inputs, for those that have some; what workloads list is among them."""
        return self._scalars[1]

    @cached_property
    def usual(self) -> dict[str, Scalar]:
        """What most workloads list, for the scalars that would take another value by themselves."""
        return self._scalars[0]

    @cached_property
    def _scalars(self) -> tuple[dict[str, Scalar], dict[str, tuple[Scalar, ...]]]:
        return usual_and_others(self.contract, self.listed)

    @cached_property
    def base(self) -> dict[str, int]:
        """A small size for every free axis: structures have room to differ there, if the budget allows it."""
        wish = {name: self._base(name) for name in self.contract.free}
        for share in _SHARES:
            smaller = {name: max(1, round(n * share)) for name, n in wish.items()}
            if self._possible(smaller):
                return smaller if share == 1 else self._grown(smaller, wish)
        return wish

    def _grown(self, smaller: dict[str, int], wish: Mapping[str, int]) -> dict[str, int]:
        """Let axes come nearer to `wish`, one after the other, where the budget allows it: it may be another's to take.

        Of a pool of large states, say, a batch takes little.
        """
        for name, most in wish.items():
            for n in range(most, smaller[name], -1):
                if self._possible({**smaller, name: n}, name):
                    smaller[name] = n
                    break
        return smaller

    def _possible(self, wish: Mapping[str, int], *kept: str) -> bool:
        try:
            sizes = self.settled(wish)
        except InputsError:
            return False
        return self.fits(sizes) and all(sizes[name] == wish[name] for name in kept)

    def _base(self, name: str) -> int:
        if name in self.counts:
            return self.sequences(5)[name]
        if name in self.totals:
            return {"pages": 13, "kv": 27, "q": 11}.get(self.totals[name], 23)
        if name in self.pools:
            return 17
        if re.search(r"max_.*len|max_.*pos|cache_len", name):
            return 37
        return 4 if re.search(r"head|group|expert|page|block", name) else 5

    def elements(self, axes: Mapping[str, Any]) -> int:
        """Return how many elements all inputs and outputs have; unknown axes count as 1."""
        return sum(self.each(axes).values())

    def largest(self, axes: Mapping[str, Any]) -> int:
        """Return how many elements the largest input or output has."""
        return max(self.each(axes).values(), default=0)

    def each(self, axes: Mapping[str, Any]) -> dict[str, int]:
        """Return how many elements every input and output has, by name."""
        every = {**self.contract.dims, **self.contract.output_dims}
        return {
            name: math.prod(1 if n is None else n for n in shape_of(trees, axes)) if trees else 1
            for name, trees in every.items()
        }

    @cached_property
    def budget(self) -> int:
        """The most elements that a case may have."""
        least = self.elements(self.settled(dict.fromkeys(self.contract.free, 1)))
        return max(self.max_elements, least + least // 4 + 1024)

    def settled(self, wish: Mapping[str, int], pinned: Collection[str] = ()) -> dict[str, int]:
        """Return sizes near to `wish` for which valid data exists. Raises Unsatisfiable."""
        key = (tuple(wish.items()), tuple(pinned))
        if key not in self._settled:
            if len(self._settled) >= _REMEMBERED:
                self._settled.clear()
            self._settled[key] = settle(self.contract, self.plan, wish, pinned)
        return dict(self._settled[key])

    def fits(self, axes: Mapping[str, int], room: int = 0) -> bool:
        """Say whether a case of these sizes stays within the budget, or within `room`, if that is more."""
        return self.elements(axes) <= max(self.budget, room)

    @cached_property
    def candidates(self) -> dict[str, list[int]]:
        """The sizes to try for each free axis, ascending: edges, listed ones and one past the largest listed."""
        return {name: self._candidates(name) for name in self.contract.free}

    def _candidates(self, name: str) -> list[int]:
        seen = [value for axes in self.listed if isinstance(value := axes.get(name), int)]
        past = [max(seen) + 1] if seen else []
        low = self.lowest(name)
        wanted = sorted({n for n in (low, *SIZES, *MORE_SIZES, *seen, *past) if n >= low})
        fitting = bisect_left(wanted, 1, key=lambda n: int(not self._affordable(name, n)))  # cost grows with the size
        return wanted[:fitting] or [low]

    def _affordable(self, name: str, value: int) -> bool:
        small = {**dict.fromkeys(self.contract.free, 1), name: value}
        try:
            return self.fits(self.settled(small, (name,)))
        except InputsError:
            return False

    def scaled(self, name: str, value: int) -> dict[str, int]:
        """Return the base case with one axis changed, and others as they have to be; sequences have some to hold."""
        wish = {**self.base, name: value}
        if name in self.counts:
            wish.update({axis: max(wish[axis], 2 * value + 3) if value else 0 for axis in self.totals})
        try:
            settled = self.settled(wish, (name,))  # others rather than this one give way
        except InputsError:
            return wish
        return {axis: settled.get(axis, n) for axis, n in wish.items()}


_KEPT: Final[list[Grid]] = []
_KEEP: Final = 16


def grid_of(definition: Definition, listed: Sequence[Mapping[str, Scalar]] = (), max_elements: int = 0) -> Grid:
    """Return the grid of a definition, or the one made before for the same object and arguments."""
    contract, most = contract_of(definition), max_elements or DEFAULT_ELEMENTS
    for grid in _KEPT:
        if grid.contract is contract and grid.max_elements == most and grid.listed == tuple(listed):
            return grid
    grid = Grid(contract, plan_of(contract), tuple(listed), most)
    _KEPT.append(grid)
    del _KEPT[:-_KEEP]
    return grid
