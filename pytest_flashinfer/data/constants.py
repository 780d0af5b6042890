"""Constant axes without a value, as dumps have them: the data decides them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flashinfer.data.dtypes import PACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flashinfer.data.model import Definition


def open_constants(definition: Definition) -> tuple[str, ...]:
    """Return the constant axes that the definition gives no value."""
    return tuple(name for name, axis in definition.axes.items() if axis.kind == "const" and axis.value is None)


def pinned(definition: Definition, listed: Iterable[Mapping[str, int]]) -> Definition:
    """Return the definition with the values that the first listed workload to name such a constant gives it."""
    known: dict[str, int] = {}
    for sizes in listed:
        known = {**sizes, **known}
    found = {name: known[name] for name in open_constants(definition) if name in known}
    if not found:
        return definition
    axes = {name: replace(axis, value=found.get(name, axis.value)) for name, axis in definition.axes.items()}
    return replace(definition, axes=axes)


def shown(definition: Definition, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes that the stored shapes of inputs show, of axes without a value of their own.

    The last axis of a packed tensor shows nothing: half a size may have been odd.
    """
    found: dict[str, int] = {}
    for name, sizes in shapes.items():
        spec = definition.inputs.get(name)
        named = spec.shape or () if spec is not None else ()
        count = len(named) - (spec is not None and spec.dtype in PACKED)
        for axis, size in zip(named[:count], sizes, strict=False):
            if axis in definition.axes and definition.axes[axis].value is None:
                found.setdefault(axis, size)
    return found
