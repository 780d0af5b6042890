"""Smoke scope: the few smallest and most different workloads of a definition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition, Workload

CHOSEN = 3
CANDIDATES = 8
ELEMENTS = 1 << 26  # of the chosen workloads together; the smallest one is taken whatever its size


def elements(definition: Definition, axes: Mapping[str, int]) -> int:
    """Return how many elements all inputs and outputs of a workload hold; axes it leaves open count as 1."""
    sizes = {**definition.const_axes, **axes}
    total = 0
    for spec in (*definition.inputs.values(), *definition.outputs.values()):
        total += math.prod(int(axis) if axis.isdigit() else sizes.get(axis, 1) for axis in spec.shape or ())
    return total


def smoke(definition: Definition, workloads: Sequence[Workload]) -> list[Workload]:
    """Return up to three of the smallest workloads: the smallest, then, within a budget, those farthest from them.

    Distance is taken between the logarithms of the axis sizes, so 1 and 64 differ as much as 64 and 4096.
    """
    by_size = sorted(workloads, key=lambda workload: (elements(definition, workload.axes), workload.uuid))[:CANDIDATES]
    chosen = by_size[:1]
    left = ELEMENTS - sum(elements(definition, workload.axes) for workload in chosen)
    while len(chosen) < CHOSEN:
        rest = [each for each in by_size if each not in chosen and elements(definition, each.axes) <= left]
        if not rest:
            break
        chosen.append(max(rest, key=lambda candidate: min(_distance(candidate, other) for other in chosen)))
        left -= elements(definition, chosen[-1].axes)
    return chosen


def _distance(one: Workload, other: Workload) -> float:
    axes = {*one.axes, *other.axes}
    return math.dist(
        *([math.log2(1 + workload.axes.get(axis, 0)) for axis in sorted(axes)] for workload in (one, other))
    )
