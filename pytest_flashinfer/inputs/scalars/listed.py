"""Values of scalars where workloads list some: what most of them list is the usual value."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.dtypes import is_integer
from pytest_flashinfer.inputs.scalars.choice import chosen, others
from pytest_flashinfer.inputs.scalars.usual_values import fits_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.recipe import Scalar

    Listed = Sequence[Mapping[str, Scalar]]  # the sizes and scalars of each workload


def sizes_and_scalars(workload: Workload) -> dict[str, Scalar]:
    """Return what a workload says of its case in numbers and texts."""
    scalars = {name: value for name, value in workload.scalars.items() if isinstance(value, bool | int | float | str)}
    return {**scalars, **workload.axes}


def usual_and_others(
    contract: Contract, listed: Listed
) -> tuple[dict[str, Scalar], dict[str, tuple[Scalar, ...]]]:  # fmt: skip
    """Return what most workloads list, where a scalar would take another value by itself, and what else is to be tried.

    Other listed values are among the latter. An integer that shapes have to fit is usually as it is by itself.
    """
    env, usual, more = dict(contract.constants), {}, {}
    for name in (name for name, trees in contract.dims.items() if not trees and name in contract.definition.inputs):
        stated = _stated(contract, name, listed)
        values = list(others(contract, name, env, stated))
        times = Counter(each[name] for each in listed if name in each)
        most = [value for value in values if value in stated and 2 * times[value] > len(listed)]
        first = chosen(contract, name, env)
        if first is None and name not in contract.droppable:  # a text that nothing else tells
            most = most or values[:1]
        if most and not fits_shapes(contract, name):
            usual[name] = most[0]
            values = [*([] if first is None else [first]), *(value for value in values if value != most[0])]
        if values:
            more[name] = tuple(values)
    return usual, more


def _stated(contract: Contract, name: str, listed: Listed) -> tuple[Scalar, ...]:
    """Return the values of a scalar that workloads list; an integer only if it does not follow from their sizes."""
    stating = [each for each in listed if name in each]
    values = tuple(dict.fromkeys(each[name] for each in stating))
    if not is_integer(contract.definition.inputs[name].dtype):
        return values
    sizes = {tuple(each.get(axis) for axis in contract.axis_names) for each in stating}
    return values if len(values) == 1 < len(sizes) else ()
