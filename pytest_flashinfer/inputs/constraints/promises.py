"""Conditions on sizes that no constraint states but that names and dtypes promise: heads are shared evenly."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import is_float, is_packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.contract import Contract

_DOUBLE: Final = re.compile(r"_doubled$|^two_|_x2$")
_KEY_HEADS: Final = re.compile(r"(^|_)(kv|k|v)_heads$|heads_(kv|k|v)$")
_QUERY_HEADS: Final = re.compile(r"^(num_)?((q|qo)_)?heads$|heads_(q|qo)$")
_BLOCKS: Final = re.compile(r"(.+)_div_([a-z]\w*)$")
_EVERY_EXPERT: Final = re.compile(r"^(num_|n_)?((all|global|total|routed)_)?experts$")
_SCALE: Final = re.compile(r"scale|_sf$")
_SCALE_SIZE: Final = re.compile(r"scales?_(size|len|numel)$|^num_scales$")


def promises(contract: Contract) -> Iterator[str]:
    """Yield the conditions, as text; sizes that follow from others, or that constraints speak of, promise nothing."""
    yield from _packed(contract)
    ruled = frozenset().union(*(rule.names for rule in (*contract.equations, *contract.predicates)))
    told = ruled | contract.derived.keys()
    sizes = [name for name in contract.axis_names if name in contract.input_axes - told]
    query = next((name for name in contract.constants if _QUERY_HEADS.search(name)), None)
    held = next((name for name in contract.constants if re.search(r"local_experts$", name)), None)
    if held is not None:
        yield from (f"{name} >= {held}" for name in sizes if _EVERY_EXPERT.search(name))
    singles = _only_scales(contract)
    for name in sizes:
        if _DOUBLE.search(name):
            yield f"{name} % 64 == 0"
        if query is not None and _KEY_HEADS.search(name):
            yield f"{query} % {name} == 0"
        if name in singles:
            yield f"{name} == 1"
        yield from _blocks(contract, name)


def _packed(contract: Contract) -> Iterator[str]:
    """Yield that the last axes of tensors of which two values share a byte are even, where sizes are to choose."""
    known, specs = {*contract.free, *contract.derived}, contract.definition
    pairs = ((specs.inputs, contract.dims), (specs.outputs, contract.output_dims))
    tensors = ((spec, shapes[name]) for declared, shapes in pairs for name, spec in declared.items())
    last = {ast.unparse(trees[-1]): names_of(trees[-1]) for spec, trees in tensors if trees and is_packed(spec.dtype)}
    for text, names in last.items():
        if names & known and names <= known | contract.constants.keys():
            yield f"({text}) % 2 == 0"


def _blocks(contract: Contract, name: str) -> Iterator[str]:
    """Blocks divide what they are of; those of one name are of one size, in `k_div_block` and `n_div_block`."""
    part = _BLOCKS.match(name)
    whole = contract.constants.get(part[1]) if part else None
    if part is None or whole is None:
        return
    yield f"{whole} % {name} == 0"
    for other, size in contract.constants.items():
        mate = f"{other}_div_{part[2]}"
        if mate != name and mate in contract.axis_names:
            yield f"{whole} * {mate} == {size} * {name}"


def _only_scales(contract: Contract) -> frozenset[str]:
    """Return the axes that are named for scales and are of nothing else: there is nothing else to have one each."""
    users: dict[str, set[str]] = {}
    for name, trees in (*contract.dims.items(), *contract.output_dims.items()):
        for axis in {n for tree in trees or () for n in names_of(tree)}:
            users.setdefault(axis, set()).add(name)
    flat = {
        name
        for name, trees in contract.dims.items()
        if trees and len(trees) == 1 and _SCALE.search(name) and is_float(contract.dtype(name))
    }
    shown = contract.output_dims.keys()
    return frozenset(axis for axis, names in users.items() if names <= flat - shown and _SCALE_SIZE.search(axis))
