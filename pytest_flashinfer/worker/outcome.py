"""What one call of a solution produced, and what it did that a call must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_flashinfer.worker.guards import Violation
from pytest_flashinfer.worker.processor_time import ProcessorTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from pytest_flashinfer.worker.clock import Span

MALFORMED = frozenset({"count", "shape", "dtype", "type", "object", "device"})  # kinds after which there are no values
_LATE = "output {} changed after the call had returned, when its work was to be complete"


class Compilation(NamedTuple):
    """One compilation by Triton, as the worker tells of it: a hint, which no verdict rests on."""

    kernel: str
    seconds: float
    constants: Mapping[str, str]  # what the kernel was compiled for, by parameter


@dataclass
class RunResult:
    """What one call produced.

    `outputs` are private copies on the judge's device; an output that was not returned in the declared form is not
    among them.
    `violations` is empty for a call that kept the rules; a late change that shows only during the next call is added
    to it then. `unwritten` says which part of an output still holds poison, also where that proves nothing by itself.
    `missing` are optional outputs that were left out, or returned as the input which they are written into. Seconds
    are of the call alone; `span` comes with timed calls, once `Runner.read_clock` was called. `round_trip` is how long
    the judge waited for the answer by its own clock: no call took longer; `processor` is the worker's processor time
    meanwhile, of timed calls on the CPU. `log` is what the worker printed, `compiled` what Triton compiled.
    """

    outputs: dict[str, torch.Tensor]
    violations: list[Violation]
    unwritten: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    host_seconds: float = 0.0
    round_trip: float = 0.0
    processor: ProcessorTime = field(default_factory=ProcessorTime)
    span: Span | None = None
    log: str = ""
    compiled: tuple[Compilation, ...] = ()

    @property
    def device_seconds(self) -> float | None:
        """The time of a timed call by the worker's clock, in seconds."""
        return None if self.span is None else self.span.seconds

    def add_late(self, names: Iterable[str]) -> None:
        """Note that these outputs were still being written when the call returned, once for each."""
        known = {violation.tensor for violation in self.violations if violation.kind == "late"}
        for name in names:
            if name in self.outputs and name not in known:
                self.violations.append(Violation("late", name, _LATE.format(name)))
