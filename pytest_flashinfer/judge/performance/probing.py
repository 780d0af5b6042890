"""A card's limits, measured in a worker of the judge's own: for cards whose data sheet is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_flashinfer.judge.performance.cards import Limits
from pytest_flashinfer.worker.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.worker.pool import Pool

_HANDLER: Final = "pytest_flashinfer.worker.probe"
_TIMEOUT: Final = 120.0  # seconds


def measured(pool: Pool) -> Limits | None:
    """Return the limits of the card that `pool` works on; `None` where they cannot be measured."""
    try:
        worker = pool.worker(_HANDLER, successor=False)
        try:
            return limits_from(worker.call({"do": "probe"}, _TIMEOUT))
        finally:
            worker.close()
    except WorkerError:
        return None  # no share is reported then; kernels are judged and timed all the same


def limits_from(reply: Mapping[str, object]) -> Limits | None:
    """Return measured limits as a worker's reply states them."""
    bandwidth, matrix = reply.get("bandwidth"), reply.get("matrix")
    if not isinstance(bandwidth, (int, float)) or not bandwidth > 0 or not isinstance(matrix, dict):
        return None
    rates = {str(dtype): float(rate) for dtype, rate in matrix.items() if isinstance(rate, (int, float)) and rate > 0}
    return Limits(float(bandwidth), rates, "measured")
