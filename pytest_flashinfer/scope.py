"""Smoke scope: the few smallest and most different workloads of a definition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition, Workload

CHOSEN = 3
CANDIDATES = 8


def elements(definition: Definition, axes: Mapping[str, int]) -> int:
    """Return how many elements all inputs and outputs of a workload hold; axes it leaves open count as 1."""
    sizes = {**definition.const_axes, **axes}
    total = 0
    for spec in (*definition.inputs.values(), *definition.outputs.values()):
        total += math.prod(int(axis) if axis.isdigit() else sizes.get(axis, 1) for axis in spec.shape or ())
    return total


def smoke(definition: Definition, workloads: Sequence[Workload]) -> list[Workload]:
    """Return up to three of the smallest workloads: the smallest, then those farthest from the ones chosen.

    Distance is taken between the logarithms of the axis sizes, so 1 and 64 differ as much as 64 and 4096.
    """
    by_size = sorted(workloads, key=lambda workload: (elements(definition, workload.axes), workload.uuid))[:CANDIDATES]
    chosen = by_size[:1]
    while len(chosen) < min(CHOSEN, len(by_size)):
        rest = [workload for workload in by_size if workload not in chosen]
        chosen.append(max(rest, key=lambda candidate: min(_distance(candidate, other) for other in chosen)))
    return chosen


def _distance(one: Workload, other: Workload) -> float:
    axes = {*one.axes, *other.axes}
    return math.dist(
        *([math.log2(1 + workload.axes.get(axis, 0)) for axis in sorted(axes)] for workload in (one, other))
    )
