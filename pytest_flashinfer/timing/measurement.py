"""One measurement: calls of a kernel under the clock of its worker, and whether they can be believed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median, stdev
from typing import TYPE_CHECKING, Any, cast

from pytest_flashinfer.worker.timing import disagreement, hidden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.cases.making import Cases
    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.solution_call import Call
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.clock import Span
    from pytest_flashinfer.worker.runner import Cache, RunResult

# Seconds of a call and how often it is timed above them: an interpreted kernel's, or a long reference's, say.
ROUNDS = {"cpu": {0.0: 5, 0.02: 3, 0.1: 1}, "cuda": {0.0: 10, 5e-3: 4, 0.1: 2}}
LARGE_BYTES = 1 << 28  # cases above this size are timed in fewer rounds: each has an output to keep and to judge
LARGE_ROUNDS = 4
_FEWER = min(filter(None, ROUNDS["cuda"]))
SLOW = 0.1  # seconds of a call after which another one is no warmer
_CLOCKS = {"cupti": "device (CUPTI)", "events": "device (CUDA events)", "wall": "wall clock"}


@dataclass(frozen=True)
class Measurement:
    """`warm` are the calls ahead, `timed` those that count; a call that failed ends the list that it is in.

    `card` is what the driver said of the card meanwhile, `on_card` whether one was timed.
    """

    warm: tuple[Call, ...]
    timed: tuple[Call, ...] = ()
    card: Mapping[str, Any] = field(default_factory=dict)
    on_card: bool = False

    @property
    def calls(self) -> list[Call]:
        """All calls; each is to be judged."""
        return [*self.warm, *self.timed]

    @property
    def complete(self) -> bool:
        """Whether no call failed, and each has a time."""
        timeless = any(each.kind == "clock" for result in self.results for each in result.violations)
        failed = any(call.error is not None for call in self.calls)
        return bool(self.timed) and not failed and not timeless

    @property
    def results(self) -> list[RunResult]:
        """What the timed calls produced."""
        return [call.result for call in self.timed if call.result is not None]

    @property
    def spans(self) -> list[Span]:
        """What the worker's clock said of the timed calls."""
        return [result.span for result in self.results if result.span is not None]

    @property
    def durations(self) -> list[float]:
        """The durations in seconds; empty where a call failed. Without any device work it is the host's time."""
        return [each.device_seconds or each.host_seconds for each in self.results] if self.complete else []

    @property
    def host(self) -> float:
        """How long a call kept the host, in seconds: what Python and the launches cost."""
        return median(span.host_seconds for span in self.spans) if self.spans else 0.0

    @property
    def noise(self) -> float:
        """The spread of the durations as a share of their median."""
        durations = self.durations
        return stdev(durations) / median(durations) if len(durations) > 1 and median(durations) else 0.0

    @property
    def clock(self) -> str:
        """Which clock the durations come from, in words."""
        return ", ".join(_CLOCKS[source] for source in sorted({span.source for span in self.spans}))

    @property
    def clock_note(self) -> str:
        """Why the clock is not the best one, or what may show in the median; nothing where few calls have a note."""
        notes = [span.note for span in self.spans]
        return "; ".join(sorted({note for note in notes if note and 2 * notes.count(note) >= len(notes)}))

    @property
    def contradiction(self) -> str | None:
        """Why the clocks contradict each other, or `None`."""
        if not self.spans:
            return None
        waited = [result.round_trip for result in self.results]
        said = disagreement(self.spans, sum(waited), on_card=self.on_card)
        if said is None and not self.on_card and len(waited) == len(self.spans):
            nbytes = max(sum(value.nbytes for value in each.outputs.values()) for each in self.results)
            told = [result.host_seconds for result in self.results]
            said = hidden(self.spans, told, waited, [result.processor for result in self.results], nbytes)
        idle = all(span.source == "cupti" and not span.seconds for span in self.spans)
        if said is None and idle and any(value.numel() for each in self.results for value in each.outputs.values()):
            return "there are outputs, and the device did nothing during any call"
        return said


def joined(first: Measurement, other: Measurement) -> Measurement:
    """Return two measurements of one kernel on one workload as one, with the rounds of both."""
    throttle = sorted({*first.card.get("throttle", ()), *other.card.get("throttle", ())})
    return Measurement(
        first.warm + other.warm,
        first.timed + other.timed,
        {**first.card, **other.card, "throttle": throttle},
        on_card=first.on_card,
    )


def most_rounds(kind: str) -> int:
    """Return in how many rounds short calls are timed on a kind of device."""
    return max(ROUNDS[kind].values())


def measure(session: FibSession, kernel: UnderTest, cases: Cases, workload: Workload, attempt: int = 0) -> Measurement:
    """Call untimed, then until the times have settled, then once for each round with new inputs.

    The number of rounds is fixed before, by the size of the case and by how long a call took earlier. Where calls
    take long, and on a card, an earlier one on the workload is warm-up enough. Nothing else that this plugin runs on
    this host is on the card meanwhile. `attempt` tells measurements of one kernel apart: one that remembers answers
    must not find them in the next. Raises LockedOut where the card does not become free.
    """
    first, device = cases.first(workload), session.device
    warm = _ahead(kernel, first, workload.uuid, device.kind)
    if warm and warm[-1].error is not None:
        return Measurement(warm)
    took = kernel.took.get(workload.uuid, 0.0)
    rounds = next(number for seconds, number in reversed(ROUNDS[device.kind].items()) if took >= seconds)
    timed = list(cases.timed(workload, min(rounds, LARGE_ROUNDS) if first.nbytes > LARGE_BYTES else rounds, attempt))
    warm_up = device.kind == "cuda" and took < SLOW
    cache = cast("Cache", session.options.cache)
    with ExitStack() as held:
        with session.progress.doing("waiting for the card"):
            session.pool.quiet()
            held.enter_context(session.card.turns.alone())
        facts = held.enter_context(session.card.watch.throttling())
        calls = tuple(kernel.run(timed, cache=cache, warm=first if warm_up else None))
    return Measurement(warm, calls, facts, on_card=device.kind == "cuda")


def _ahead(kernel: UnderTest, case: Case, uuid: str, kind: str) -> tuple[Call, ...]:
    """Call untimed: on a card twice where nobody knows yet how long a call takes once all is loaded.

    What is not compiled for one workload, as plain torch is not, has loaded all on another one before: once will do.
    What seems to take long is called once more. Where it is known, and the process has compiled and loaded all, the
    calls ahead that the worker makes by itself will do, unless it must not: see `Kernel.calls`.
    """
    if kind == "cpu":
        return () if kernel.took.get(uuid, 0.0) >= SLOW else tuple(kernel.run([case]))
    loaded = bool(kernel.called) and kernel.solution.language == "python"
    if uuid not in kernel.called and not (loaded and uuid in kernel.took):
        calls = kernel.run([case] if loaded else [case, case])
        # A library may have chosen a kernel for these sizes, or the host have been held up.
        if _FEWER <= kernel.took.get(uuid, 0.0) < SLOW and calls[-1].error is None:
            calls += kernel.run([case])
        return tuple(calls)
    return tuple(kernel.run([case])) if kernel.writes_inputs else ()
