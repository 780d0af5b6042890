"""What the `timing` fixture returns: timed calls of a solution and of its reference, handed to pytest-benchmark."""

from __future__ import annotations

import warnings
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_flashinfer import stopwatch
from pytest_flashinfer.judge import policy
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.judging import Failed, Record
from pytest_flashinfer.worker.timing import disagreement

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.judging import Call
    from pytest_flashinfer.making import Cases
    from pytest_flashinfer.session import FibSession
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.runner import Cache

ROUNDS = {"cpu": 5, "cuda": 10}
LARGE_BYTES = 1 << 28  # inputs above this size are timed in fewer rounds: each has an output to keep and to judge
LARGE_ROUNDS = 4
SLOW = 0.1  # seconds of a call on the CPU, as an interpreted kernel takes, above which a single round must do
SLOW_ROUNDS = 1


class Timing:
    """Times calls in the worker. On a card the durations are the device's own, on the CPU they are wall clock."""

    def __init__(self, item: pytest.Function, session: FibSession, reference: UnderTest) -> None:
        self.item = item
        self.session = session
        self.reference = reference

    def run(self, solution: UnderTest, cases: Cases, workload: Workload) -> list[Call]:
        """Call once to warm up, then once for each round with new inputs; the number of rounds is fixed before.

        A measurement that the clocks contradict is repeated once. Raises Failed where they contradict it again.
        """
        calls = self._timed(solution, cases, workload)
        for _ in range(2):
            reason = contradiction(calls)
            if reason is None:
                return calls
            calls = self._timed(solution, cases, workload)
        raise Failed(Verdict("REWARD_HACK", f"the time cannot be trusted: {reason}"), calls[-1].case)

    def _timed(self, kernel: UnderTest, cases: Cases, workload: Workload) -> list[Call]:
        first = cases.first(workload)
        warm = kernel.run([first])
        if warm[-1].error is not None:
            return warm
        with self.session.progress.doing("waiting for the card"):
            self.session.pool.quiet()
        rounds = LARGE_ROUNDS if first.nbytes > LARGE_BYTES else ROUNDS[self.session.device.kind]
        if self.session.device.kind == "cpu" and warm[-1].result is not None and warm[-1].result.host_seconds > SLOW:
            rounds = SLOW_ROUNDS
        calls = kernel.run(cases.timed(workload, rounds), cache=cast("Cache", self.session.options.cache))
        return calls if calls[-1].error is not None else [*warm, *calls]

    def report(
        self, benchmark: BenchmarkFixture, solution: UnderTest, cases: Cases, workload: Workload, calls: list[Call]
    ) -> None:
        """Give the durations to pytest-benchmark, with what explains them; the reference is timed the same way.

        Raises Failed where the policy asks for kernels of the solution's own and others did the work.
        """
        self._hold_to_language(solution, calls)
        durations = seconds(calls)
        latency = median(durations)
        reference = self.session.reference_latency(
            self.item.path, workload.uuid, lambda: self._reference_seconds(cases, workload)
        )
        results = [call.result for call in calls[1:] if call.result is not None]
        info: dict[str, Any] = {
            "axes": dict(workload.axes),
            "clock": clock_of(calls),
            "cache": self.session.options.cache,
            "device": self.session.device.name,
            "latency_s": latency,
            "host_s": median(result.host_seconds for result in results),
        }
        if reference:
            info.update(reference_s=reference, speedup=reference / latency)
        record = Record(self.item)
        for name in ("latency_s", "host_s", "reference_s", "speedup"):
            if name in info:
                record.set(name, info[name])
        benchmark.group = f"{self.item.path.stem}[{workload.uuid[:8]}]"
        benchmark.extra_info.update(info)
        untyped: Any = benchmark
        untyped.pedantic(stopwatch.play(durations), setup=stopwatch.reset, rounds=len(durations), iterations=1)

    def _reference_seconds(self, cases: Cases, workload: Workload) -> list[float]:
        try:
            return seconds(self._timed(self.reference, cases, workload))
        except Failed:  # it cannot be built as a solution is; the solution is not blamed
            return []

    def _hold_to_language(self, solution: UnderTest, calls: list[Call]) -> None:
        spans = [call.result.span for call in calls if call.result is not None and call.result.span is not None]
        ran = [pair for span in spans for pair in zip(span.kernels, span.kernel_seconds, strict=False)]
        found = policy.share(solution.solution, ran)
        if found is not None:
            Record(self.item).set("kernels", found.text)
        reason = policy.objection(solution.solution, found)
        if reason is None:
            return
        if self.session.options.policy == "custom-kernel":
            raise Failed(Verdict("REWARD_HACK", reason), calls[-1].case)
        warnings.warn(pytest.PytestWarning(f"{solution.solution.name}: {reason}"), stacklevel=2)


def seconds(calls: list[Call]) -> list[float]:
    """Return the durations of timed calls, without the warm-up call that leads them; empty where a call failed."""
    if calls[-1].error is not None:
        return []
    results = [call.result for call in calls[1:] if call.result is not None]
    return [result.device_seconds or result.host_seconds for result in results]


def clock_of(calls: list[Call]) -> str:
    """Return which clock the durations come from, in words."""
    sources = {call.result.span.source for call in calls if call.result is not None and call.result.span is not None}
    words = {"cupti": "device (CUPTI)", "events": "device (CUDA events)", "wall": "wall clock"}
    return ", ".join(words[source] for source in sorted(sources))


def contradiction(calls: list[Call]) -> str | None:
    """Return why the clocks contradict each other about timed calls, or `None`."""
    results = [call.result for call in calls if call.result is not None and call.result.span is not None]
    spans = [result.span for result in results if result.span is not None]
    return disagreement(spans, sum(result.round_trip for result in results)) if spans else None
