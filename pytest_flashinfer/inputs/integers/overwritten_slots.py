"""Slots of which a reference only replaces what they hold: nobody reads what was there before."""

from __future__ import annotations

import ast
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.data.source import BrokenSource, functions, parse_python, signature
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import FLOAT8, is_float, torch_dtype
from pytest_flashinfer.inputs.roles.nonfinite import unreadable
from pytest_flashinfer.inputs.unread_rows import leading_axes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.data.source import Function
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_SAME: Final = frozenset({"clone", "view", "reshape", "flatten", "contiguous", "detach"})  # a tensor with those values
_SIZES: Final = frozenset({"shape", "dtype", "device", "ndim", "size", "dim", "numel", "stride"})
_WRITE: Final = frozenset({"index_copy_", "index_put_"})


def pools(contract: Contract, plan: Plan) -> dict[str, tuple[int, str]]:
    """Return the inputs, written in place, whose slots are replaced: how many axes count slots, and what names them.

    Only where the reference does nothing else with them.
    """
    found: dict[str, tuple[int, str]] = {}
    definition = contract.definition
    written = [output.param for output in definition.outputs.values() if output.param]
    for slots in plan.of("slots"):
        limit = plan.roles[slots].limit
        for pool in written if limit is not None else ():
            dtype = contract.dtype(pool) if contract.dims.get(pool) else ""
            leading = leading_axes(contract.dims.get(pool) or (), ast.unparse(limit)) if limit is not None else 0
            if leading and is_float(dtype) and torch_dtype(dtype) not in FLOAT8:
                known = _only_replaces(
                    definition.reference or "", definition.entry, tuple(definition.inputs), pool, slots
                )
                found.update({pool: (leading, slots)} if known else {})
    return found


def poison(contract: Contract, plan: Plan, tensors: Mapping[str, object]) -> None:
    """Put NaN, or what `unreadable` says, into slots that are replaced: adding to it, or times 0, keeps it."""
    for name, (leading, slots) in pools(contract, plan).items():
        pool, ids = tensors.get(name), tensors.get(slots)
        if isinstance(pool, torch.Tensor) and isinstance(ids, torch.Tensor):
            rows, flat = pool.flatten(0, leading - 1), ids.flatten().long()
            rows[flat[(flat >= 0) & (flat < len(rows))]] = unreadable(contract, name, pool.dtype)


@lru_cache(maxsize=256)
def _only_replaces(reference: str, entry: str, inputs: tuple[str, ...], pool: str, slots: str) -> bool:
    """Whether a reference, as far as it can be read, only puts other values into those slots of a pool."""
    tree = parse_python(reference)
    function = None if isinstance(tree, BrokenSource) else functions(tree).get(entry)
    if function is None:
        return False
    names = signature(function).positional
    own = {each: each if each in names else place for each, place in zip_longest(inputs, names) if each}
    body = _Body(function, own[pool] or "", own[slots] or "")
    loads = {id(node) for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in body.pools}
    stores = {id(node) for node in body.stores()}
    bound = {id(node) for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bool(stores) and loads <= stores | bound | {id(node) for node in body.harmless()}


class _Body:
    """A function with the names that a pool and ids of its slots have in it."""

    def __init__(self, function: Function, pool: str, slots: str) -> None:
        self.function = function
        self.pools, self.ids = {pool}, {slots}
        before = None
        while before != (len(self.pools), len(self.ids)):
            before = len(self.pools), len(self.ids)
            for target, value in self._given():
                if self._pool(value) is not None:
                    self.pools |= names_of(target)
                elif names_of(value) & self.ids and not names_of(value) & self.pools:
                    self.ids |= names_of(target)

    def stores(self) -> Iterator[ast.Name]:
        """Yield the pool, by whichever name, where whole slots are given other values."""
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign):
                targets = (target for target in node.targets if isinstance(target, ast.Subscript))
                yield from (name for each in targets if self._whole(each.slice) and (name := self._pool(each.value)))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WRITE:
                name = self._pool(node.func.value)
                if name is not None and any(names_of(each) & self.ids for each in node.args[:2]):
                    yield name

    def harmless(self) -> Iterator[ast.Name]:
        """Yield the pool where it is returned, given another name or asked for its sizes."""
        for _, value in self._given():
            yield from filter(None, [self._pool(value)])
        for node in ast.walk(self.function):
            if isinstance(node, ast.Attribute) and node.attr in _SIZES:
                yield from filter(None, [self._pool(node.value)])
            elif isinstance(node, ast.Return):
                each = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                yield from filter(None, map(self._pool, each))

    def _given(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield what names are given; of loops what they run over."""
        for node in ast.walk(self.function):
            if isinstance(node, ast.For):
                yield node.target, node.iter
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                elif isinstance(target, (ast.Name, ast.Tuple)):
                    yield target, node.value

    def _pool(self, node: ast.expr | None) -> ast.Name | None:
        """Return the pool that an expression is, all of it."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
            node = node.func.value
        return node if isinstance(node, ast.Name) and node.id in self.pools else None

    def _whole(self, index: ast.expr) -> bool:
        """Whether an index takes slots as they are, and nothing of each."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        return bool(names_of(index) & self.ids) and all(
            names_of(part) & self.ids or (isinstance(part, ast.Slice) and part.lower is part.upper is part.step)
            for part in parts
        )
