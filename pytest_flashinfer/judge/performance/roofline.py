"""The time that no kernel can beat on a card: bytes over bandwidth, operations over the rate of its matrix units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.data.vocabulary import COUNTS
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.judge.performance.flops import Flops, flops, operand_dtype
from pytest_flashinfer.judge.performance.lengths import read_lengths
from pytest_flashinfer.judge.performance.traffic import Traffic, traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.judge.performance.cards import Limits
    from pytest_flashinfer.worker.case import Case

_CLEAR: Final = 0.75  # of the floor: a time below is no rounding and no boost of the clocks
_HEADROOM: Final = 1.3  # by which a card may be better than this run measured
_OVER: Final = 1.0


@dataclass(frozen=True)
class Work:
    """What one call has to do. `counted` says by whom: a rule, the definition, or nobody (`flops` is `None` then)."""

    traffic: Traffic
    flops: Flops | None
    counted: Literal["rule", "definition", "nobody"]


class WorkError(ValueError):
    """A definition's own count cannot be computed; one line."""


def work_of(case: Case, own: float | None = None) -> Work:
    """Count the work of a case; `own` are the operations as a fixture gives them. Raises WorkError."""
    name = case.definition.name
    try:
        ragged = read_lengths(case)
        moved, found = traffic(case, ragged), flops(case, ragged)
    except (InputsError, ConstraintError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
        # Foreign definitions hold tensors that no rule here expects; a kernel is judged and timed all the same.
        raise WorkError(f"{name}: its work cannot be counted: {error}") from error
    stated = {key: stated_count(case, key) for key in COUNTS}
    if stated["bytes"] is not None:
        moved = Traffic(stated["bytes"], 0)
    count = stated["flops"] if own is None else _count(own, f"{name}: the fixture flops")
    if count is not None:
        return Work(moved, Flops(count, found.dtype if found else operand_dtype(case)), "definition")
    return Work(moved, found, "rule" if found else "nobody")


def stated_count(case: Case, key: str) -> int | None:
    """Return what the definition's own expression `key` gives, `None` where it has none. Raises WorkError."""
    text = case.definition.extra.get(key)
    if text is None:
        return None
    env: dict[str, Any] = {**case.values, **case.definition.const_axes, **case.axes}
    try:
        value = float(text if isinstance(text, (int, float)) else parse(str(text)).evaluate(env))
    except (ConstraintError, ArithmeticError, TypeError, ValueError, RuntimeError, IndexError) as error:
        raise WorkError(f"{case.definition.name}: {key} {text!r}: {error}") from error
    return _count(value, f"{case.definition.name}: {key} {text!r}")


def _count(value: float, what: str) -> int:
    if not 0 <= value < float(1 << 80):
        raise WorkError(f"{what} gives {value:g}, which is no count")
    return int(value)


@dataclass(frozen=True)
class Roofline:
    """What a card needs for some work at least, in seconds.

    `seconds` is the floor that a share is taken of, `bound` what decides it. `least` is the time that a right kernel
    cannot be below whatever it does: 0 where nothing is certain.
    """

    work: Work
    seconds: float
    bound: Literal["memory", "compute"]
    least: float

    def share(self, latency: float) -> float:
        """Return which part of the card's limit a latency reaches; 1 is all of it."""
        return self.seconds / latency if latency else float("inf")

    def facts(self, latency: float) -> dict[str, Any]:
        """Return what a report says of a latency in seconds; more than the whole is flagged, not praised."""
        share = self.share(latency)
        facts: dict[str, Any] = {"roofline_s": self.seconds, "roofline_share": share, "roofline_bound": self.bound}
        if share > _OVER:
            text = "more than the card can do: data from a cache, or a wrong count of bytes or operations"
            facts["roofline_note"] = f"{share:.0%} of the roofline is {text}"
        return facts

    def below(self, latency: float) -> str | None:
        """Return why a latency cannot be true, or `None`."""
        if latency >= _CLEAR * self.least:
            return None
        moved = self.work.traffic
        count = f" and do {self.work.flops.count:.3g} operations" if self.work.flops else ""
        return (
            f"{latency * 1e6:.2f} us is below the {self.least * 1e6:.2f} us that the card needs to read"
            f" {moved.read / 1e6:.3g} MB and write {moved.written / 1e6:.3g} MB{count}"
        )


def rates(work: Work, latency: float) -> dict[str, float]:
    """Return the bytes and operations of a call per second: they need no limits, so the CPU has them as well."""
    if not latency:
        return {}
    facts = {"gb_per_s": work.traffic.total / latency / 1e9}
    if work.flops is not None:
        facts["tflop_per_s"] = work.flops.count / latency / 1e12
    return facts


def roofline(work: Work, limits: Limits, *, cold: bool) -> Roofline:
    """Set work against a card's limits; `cold` says that nothing was in a cache when the call began."""
    memory = work.traffic.total / limits.bandwidth
    rate = _rate(limits.matrix, work.flops)
    compute = work.flops.count / rate if work.flops is not None and rate else 0.0
    headroom = _HEADROOM if limits.source == "measured" else 1.0
    certain = work.traffic.certain / limits.bandwidth if cold else 0.0
    # In whatever it computes: a kernel may use a faster unit than the operands' own and still be within the bound.
    if work.flops is not None and work.flops.certain and limits.fastest:
        certain = max(certain, work.flops.count / limits.fastest)
    bound: Literal["memory", "compute"] = "compute" if compute > memory else "memory"
    return Roofline(work, max(memory, compute), bound, certain / headroom)


def _rate(matrix: Mapping[str, float], work: Flops | None) -> float | None:
    from pytest_flashinfer.judge.floats import canonical

    return matrix.get(canonical(work.dtype)) if work is not None and work.dtype else None
