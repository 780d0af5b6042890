"""Smoke scope: the few smallest and most different workloads of a definition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition, Workload

CHOSEN = 2
CANDIDATES = 6
GROWTH = 32  # a chosen workload has at most this many times the elements of the smallest one,
SMALL = 1 << 16  # or this many elements
LARGEST = 3 << 23  # elements of a definition at its smallest sizes
ELEMENTS = 1 << 24  # of the chosen workloads together; the smallest one is taken whatever its size


def elements(definition: Definition, axes: Mapping[str, int]) -> int:
    """Return how many elements all inputs and outputs of a workload hold; axes it leaves open count as 1."""
    sizes = {**definition.const_axes, **axes}
    total = 0
    for spec in (*definition.inputs.values(), *definition.outputs.values()):
        total += math.prod(int(axis) if axis.isdigit() else sizes.get(axis, 1) for axis in spec.shape or ())
    return total


def too_large(definition: Definition) -> str | None:
    """Return why no workload of a definition is small enough for the smoke scope, or `None`."""
    least = elements(definition, dict.fromkeys(definition.var_axes, 1))
    if least <= LARGEST:
        return None
    return f"at least {least >> 20} million elements, too many for the smoke scope; --fib-scope=full runs it"


def smoke(definition: Definition, workloads: Sequence[Workload]) -> list[Workload]:
    """Return up to two of the smallest workloads: the smallest, then, within a budget, those farthest from them.

    Distance is taken between the logarithms of the axis sizes, so 1 and 64 differ as much as 64 and 4096.
    """
    by_size = sorted(workloads, key=lambda workload: (elements(definition, workload.axes), workload.uuid))[:CANDIDATES]
    chosen = by_size[:1]
    sizes = {workload.uuid: elements(definition, workload.axes) for workload in by_size}
    left = ELEMENTS - sum(sizes[workload.uuid] for workload in chosen)
    while chosen and len(chosen) < CHOSEN:
        most = min(left, max(SMALL, GROWTH * sizes[chosen[0].uuid]))
        rest = [each for each in by_size if each not in chosen and sizes[each.uuid] <= most]
        if not rest:
            break
        chosen.append(max(rest, key=lambda candidate: min(_distance(candidate, other) for other in chosen)))
        left -= sizes[chosen[-1].uuid]
    return chosen


def _distance(one: Workload, other: Workload) -> float:
    axes = {*one.axes, *other.axes}
    return math.dist(
        *([math.log2(1 + workload.axes.get(axis, 0)) for axis in sorted(axes)] for workload in (one, other))
    )
