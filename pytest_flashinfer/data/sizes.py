"""Sizes of all axes, from those that a workload gives: constants are known, expressions follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.constraints import ConstraintError, evaluate_integer, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import Definition


class SizeError(ValueError):
    """Why an axis has no size; `circular` where that is so for any workload."""

    def __init__(self, axis: str, message: str, *, circular: bool = False) -> None:
        super().__init__(message)
        self.axis, self.circular = axis, circular


def resolve(definition: Definition, given: Mapping[str, int]) -> dict[str, int]:
    """Compute the axes of kind `expr` and add the constants to the given sizes.

    Axes that neither are given nor follow are left out. Raises SizeError where an expression cannot be computed.
    """
    sizes = {**definition.const_axes, **given}
    open_axes = {
        name: axis.expression
        for name, axis in definition.axes.items()
        if axis.kind == "expr" and axis.expression is not None and name not in given
    }
    needs = {name: _names(text) for name, text in open_axes.items()}
    users: dict[str, list[str]] = {}
    for name, needed in needs.items():
        for other in needed - sizes.keys():
            users.setdefault(other, []).append(name)
    ready = [name for name in open_axes if needs[name] <= sizes.keys()]
    for name in ready:  # which grows as sizes become known
        sizes[name] = _compute(name, open_axes.pop(name), sizes)
        ready += [other for other in users.get(name, ()) if other in open_axes and needs[other] <= sizes.keys()]
    for name in open_axes:
        if needs[name] <= sizes.keys() | open_axes.keys():
            raise SizeError(name, f"axis {name!r} follows from itself", circular=True)
    return sizes


def _names(text: str) -> frozenset[str]:
    try:
        return parse(text).names
    except ConstraintError:
        return frozenset()


def _compute(name: str, text: str, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate_integer(text, sizes)
    except ConstraintError as error:
        raise SizeError(name, f"axis {name!r}: {error}") from error
