"""What the free axes of a definition are for: sequences, totals of these, pools that ids point into, rows."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.constraints.trees import called, names_of
from pytest_flashinfer.inputs.integers.unused import dispensable
from pytest_flashinfer.inputs.pointers import total_axis
from pytest_flashinfer.inputs.roles import axis_contents
from pytest_flashinfer.inputs.roles.descriptions import may_be_zero

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan


@dataclass(frozen=True)
class Axes:
    """The free axes of one contract, by what they are for."""

    contract: Contract
    plan: Plan

    @cached_property
    def counts(self) -> frozenset[str]:
        """The free axes that count sequences, or the pointers to them."""
        names = [names_of(trees[0]) for p in self.plan.pointers if (trees := self.contract.dims[p.name])]
        behind = frozenset().union(*names)
        for name in tuple(behind):
            if name in self.contract.derived:
                behind |= self.contract.derived[name].names
        return behind & set(self.contract.free)

    @cached_property
    def _with_end(self) -> frozenset[str]:
        """The axes of pointers that have one entry more than there are sequences."""
        dims = [self.contract.dims[p.name] for p in self.plan.pointers if not p.open]
        return frozenset(ast.unparse(trees[0]) for trees in dims if trees)

    def sequences(self, count: int) -> dict[str, int]:
        """Return the sizes of the free axes that count sequences, where there are so many."""
        return {name: count + (name in self._with_end) for name in self.counts}

    @cached_property
    def ones(self) -> dict[str, int]:
        """Every free axis at 1, for one sequence where there are some."""
        return {**dict.fromkeys(self.contract.free, 1), **self.sequences(1)}

    @cached_property
    def totals(self) -> dict[str, str]:
        """The free axes that are totals of sequences, with what they count."""
        found = {}
        for pointer in self.plan.pointers:
            axis = total_axis(pointer)
            if axis in self.contract.free:
                found[axis] = "pages" if pointer.unit == "pages" else pointer.group
        return found

    @cached_property
    def pools(self) -> frozenset[str]:
        """The free axes that ids point into."""
        limits = [names_of(role.limit) for role in self.plan.roles.values() if role.limit is not None]
        return frozenset().union(*limits) & set(self.contract.free) - self.counts

    @cached_property
    def _dispensable(self) -> frozenset[str]:
        """The pools that may be empty: all ids that point into them may be marked as unused.

        Not where a constraint asks for the least or the greatest value of something that each entry has.
        """
        roles = self.plan.roles.values()
        used = [role.limit for role in roles if role.limit is not None and not dispensable(role)]
        return self.pools.difference(*map(names_of, used), self._with_an_extreme)

    @cached_property
    def _with_an_extreme(self) -> frozenset[str]:
        """The leading axes of tensors of which constraints ask for the least or the greatest value."""
        nodes = (node for rule in self.contract.reading.data for node in ast.walk(rule.tree))
        of = (called(node)[1] for node in nodes if isinstance(node, ast.Call) and called(node)[0] in {"min", "max"})
        dims = (self.contract.dims.get(tensor.id) for tensor in of if isinstance(tensor, ast.Name))
        return frozenset().union(*(names_of(trees[0]) for trees in dims if trees))

    @cached_property
    def rows(self) -> frozenset[str]:
        """The free axes along which the rows of floats lie."""
        return axis_contents.rows(self.contract, self.plan)

    def lowest(self, name: str) -> int:
        """Return the least size worth trying: 0 where the axis only says how much work there is, else 1."""
        return self._lowest.get(name, 1)

    @cached_property
    def _lowest(self) -> dict[str, int]:
        leading = {
            n for trees in (*self.contract.output_dims.values(), *self.contract.dims.values())
            for n in (names_of(trees[0]) if trees else ())
        }  # fmt: skip
        inner = {n for trees in self.contract.dims.values() for tree in (trees or ())[1:] for n in names_of(tree)}
        work = (leading - inner - self.pools) | self.totals.keys() | self.counts
        work |= (
            axis_contents.tokens(self.contract, self.plan) | may_be_zero(self.contract.definition) | self._dispensable
        )
        return {name: int(name in self._with_end or name not in work) for name in self.contract.free}
