"""What the `timing` fixture returns: timed calls of a solution and of its reference, handed to pytest-benchmark."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from pytest_flashinfer import stopwatch
from pytest_flashinfer.judging import Record

if TYPE_CHECKING:
    import pytest
    from pytest_benchmark.fixture import BenchmarkFixture

    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.judging import Call
    from pytest_flashinfer.making import Cases
    from pytest_flashinfer.session import FibSession
    from pytest_flashinfer.testing import UnderTest

ROUNDS = {"cpu": 5, "cuda": 10}


class Timing:
    """Times calls in the worker. On a card the durations are the device's own, on the CPU they are wall clock."""

    def __init__(self, item: pytest.Function, session: FibSession, reference: UnderTest) -> None:
        self.item = item
        self.session = session
        self.reference = reference
        self.rounds = ROUNDS[session.device.kind]
        self.cases: Cases | None = None
        self.workload: Workload | None = None

    def run(self, solution: UnderTest, cases: Cases, workload: Workload) -> list[Call]:
        """Call once to warm up, then once for each round with new inputs; the number of rounds is fixed before."""
        self.cases, self.workload = cases, workload
        return self._timed(solution)

    def _timed(self, kernel: UnderTest) -> list[Call]:
        assert self.cases is not None
        assert self.workload is not None
        warm = kernel.run([self.cases.first(self.workload)])
        if warm[-1].error is not None:
            return warm
        calls = kernel.run(self.cases.timed(self.workload, self.rounds), cache=self.session.options.cache)  # type: ignore[arg-type]
        return calls if calls[-1].error is not None else [*warm, *calls]

    def report(self, benchmark: BenchmarkFixture, calls: list[Call]) -> None:
        """Give the durations to pytest-benchmark, with what explains them; the reference is timed the same way."""
        assert self.workload is not None
        durations = seconds(calls)
        latency = median(durations)
        reference = self.session.reference_latency(self.item.path, self.workload.uuid, lambda: seconds(self._timed(self.reference)))
        record = Record(self.item)
        record.set("latency_s", latency)
        info = {"axes": dict(self.workload.axes), "clock": self._clock(), "device": self.session.device.name, "latency_s": latency}
        info["host_s"] = median(call.result.host_seconds for call in calls[1:] if call.result is not None)
        if reference is not None:
            record.set("reference_s", reference)
            record.set("speedup", reference / latency)
            info.update(reference_s=reference, speedup=reference / latency)
        benchmark.group = f"{self.item.path.stem}[{self.workload.uuid[:8]}]"
        benchmark.extra_info.update(info)
        benchmark.pedantic(stopwatch.play(durations), setup=stopwatch.reset, rounds=len(durations), iterations=1)

    def _clock(self) -> str:
        return "wall clock" if self.session.device.kind == "cpu" else f"device, {self.session.options.cache} L2"


def seconds(calls: list[Call]) -> list[float]:
    """Return the durations of timed calls, without the warm-up call that leads them; empty where a call failed."""
    if calls[-1].error is not None:
        return []
    results = [call.result for call in calls[1:] if call.result is not None]
    return [result.device_seconds or result.host_seconds for result in results]
