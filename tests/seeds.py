"""Seeds by what they decide, so that a test can name the way that it is about."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def seeds_for(ways: Mapping[str, tuple[int, int]]) -> Iterator[int]:
    """Yield, without end, the seeds that take for each purpose the given one of so many ways."""
    for seed in itertools.count():
        if all(way_of(seed, purpose, many) == way for purpose, (way, many) in ways.items()):
            yield seed
