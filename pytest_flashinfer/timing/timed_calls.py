"""What the `timing` fixture returns: timed calls of a solution and of its reference, handed to pytest-benchmark."""

from __future__ import annotations

from contextlib import nullcontext
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.judge import policy
from pytest_flashinfer.judge.performance.roofline import Roofline, Work, WorkError, rates, roofline, work_of
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.outputs.properties import Record
from pytest_flashinfer.report.baseline import compare, interval
from pytest_flashinfer.solution_call import Failed
from pytest_flashinfer.timing import benchmarking
from pytest_flashinfer.timing.gates import Outcome, TooSlow
from pytest_flashinfer.timing.measurement import Measurement, joined, measure, most_rounds
from pytest_flashinfer.worker.lock import LockedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from pytest_flashinfer.cases.making import Cases
    from pytest_flashinfer.data.model import Workload
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.solution_call import Call
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.case import Case

_TRIES = 3  # measurements that nobody believes, after which there is no time
_MEASUREMENTS = 5  # of a solution and its reference, at most, where it is hard to tell which is faster
_ONE_PROCESS = 3  # of them in one process each: where its memory lies makes a call some percent faster or slower
_NEAR, _ALIKE = 0.25, 0.02  # how near to each other their medians are then, and what has to be told apart
_PLACED = 0.05  # by how much two processes may differ about one kernel, however sure each is of its median
_RECORDED = ("latency_s", "host_s", "reference_s", "speedup", "roofline_s", "roofline_share")


class Timing:
    """Times calls in the worker. On a card the durations are the device's own, on the CPU they are wall clock.

    `flops` says how many operations a case needs, where neither a rule nor the definition does.
    """

    def __init__(
        self,
        item: pytest.Item,
        session: FibSession,
        reference: UnderTest,
        flops: Callable[[Case], float | None] | None = None,
    ) -> None:
        self.item = item
        self.session = session
        self.reference = reference
        self.flops = flops
        self._solution: UnderTest | None = None  # that was timed
        self._attempts = 0
        self._measured = Measurement(())
        self._outcome = Outcome()
        self._counted: Work | str | None = None  # of the item's workload, or why it cannot be counted

    def run(self, solution: UnderTest, cases: Cases, workload: Workload) -> list[Call]:
        """Measure, and measure again where a gate would fail the item: only what repeats does.

        Returns all calls, each of which is to be judged. Raises Failed where the time cannot be believed.
        """
        self._solution = solution
        self._measured = self._believable(solution, cases, workload)
        calls = self._measured.calls
        if self._measured.complete and self._judged(cases, workload).failed:
            self._measured = self._believable(solution, cases, workload)
            calls += self._measured.calls
        if self._measured.complete:
            self._outcome = self._judged(cases, workload)
        return calls

    def remeasure(self, solution: UnderTest, cases: Cases, workload: Workload) -> list[Call]:
        """On a card, measure again what looks a little faster or slower than the reference and may be as fast.

        All rounds count together: ten are enough to tell twice as fast, but not one percent. The last measurements are
        made in new processes, one after the other. Returns the calls, each of which is to be judged. Raises Failed
        where the time cannot be believed.
        """
        calls: list[Call] = []
        count = 1
        while count < _MEASUREMENTS and self._near_tie(cases, workload, count):
            if count >= _ONE_PROCESS:
                solution.close()
                self.reference.close()
            again = self._believable(solution, cases, workload)
            calls += again.calls
            self._measured = joined(self._measured, again)
            if not again.complete:
                return calls
            count += 1
        if calls:
            self._reference_times(cases, workload, count)
            self._outcome = self._judged(cases, workload)
        return calls

    def _near_tie(self, cases: Cases, workload: Workload, count: int) -> bool:
        """Say whether a call, measured `count` times as the reference is, looks different from it and may not be.

        Only where rounds are short and take little memory.
        """
        durations, many = self._measured.durations, most_rounds(self.session.device.kind)
        if not self._measured.on_card or len(durations) < many:
            return False
        reference = self._reference_times(cases, workload, count)
        if len(reference) < many:
            return False
        compared = compare(interval(reference), interval(durations), _ALIKE)
        apart = max(compared.ratio, 1 / compared.ratio) - 1
        return _ALIKE < apart < (_NEAR if compared.verdict == "UNDECIDED" else _PLACED)

    def report(self, benchmark: BenchmarkFixture, solution: UnderTest, cases: Cases, workload: Workload) -> None:
        """Give the durations to pytest-benchmark, with what explains them; the reference is timed the same way.

        Raises Failed where the policy asks for kernels of the solution's own and others did the work, and TooSlow
        where a gate is not passed.
        """
        self._hold_to_language(solution)
        info = self._facts(cases, workload)
        record = Record(self.item)
        for name in _RECORDED:
            if name in info:
                record.set(name, info[name])
        if self._outcome.compared is not None:
            record.set("fib_compared", self._outcome.compared.line)
        benchmark.group = f"{self.item.path.stem}[{workload.uuid}]"
        benchmark.extra_info.update(info)
        benchmarking.keep(self.item, benchmark, self._measured.durations)
        if self._outcome.failed:
            record.set("fib_gate", self._outcome.status)
            raise TooSlow(self._outcome.failed)

    def _believable(self, kernel: UnderTest, cases: Cases, workload: Workload) -> Measurement:
        """Measure until the clocks agree and the card could have done it, a few times at most."""
        reason = None
        for _ in range(_TRIES):
            measured = self._measure(kernel, cases, workload, self._attempts)
            self._attempts += 1
            reason = measured.contradiction or self._below(measured)
            if reason is None or not measured.complete:
                return measured
        raise Failed(Verdict("REWARD_HACK", f"the time cannot be trusted: {reason}"), measured.calls[-1].case)

    def _measure(self, kernel: UnderTest, cases: Cases, workload: Workload, attempt: int = 0) -> Measurement:
        try:
            return measure(self.session, kernel, cases, workload, attempt)
        except LockedOut as error:
            pytest.skip(f"not timed: {error}")

    def _below(self, measured: Measurement) -> str | None:
        if not measured.complete or self.session.card.limits is None:
            return None
        _, roof, _ = self._work(measured.calls[0].case)
        return roof.below(median(measured.durations)) if roof is not None else None

    def _work(self, case: Case) -> tuple[Work | None, Roofline | None, str]:
        """Return what a call has to do, the card's limit for it, and why there is none."""
        if self._counted is None:
            try:
                self._counted = work_of(case, self.flops(case) if self.flops is not None else None)
            except WorkError as error:
                self._counted = str(error)
        if isinstance(self._counted, str):
            return None, None, self._counted
        limits = self.session.card.limits
        if limits is None:
            return self._counted, None, f"the limits of {self.session.device.name} are not known"
        return self._counted, roofline(self._counted, limits, cold=self.session.options.cache == "cold"), ""

    def _facts(self, cases: Cases, workload: Workload) -> dict[str, Any]:
        """Return what pytest-benchmark keeps beside the durations, see docs/timing.md."""
        measured, device = self._measured, self.session.device
        latency = median(measured.durations)
        info: dict[str, Any] = {
            "axes": dict(workload.axes),
            "clock": measured.clock,
            "cache": self.session.options.cache,
            "device": device.name,
            "latency_s": latency,
            "host_s": measured.host,
            "noise": measured.noise,
            **measured.card,
        }
        if measured.clock_note:
            info["clock_note"] = measured.clock_note
        reference = self._reference(cases, workload)
        if reference:
            info.update(reference_s=reference, speedup=reference / latency)
        work, roof, why_none = self._work(measured.calls[0].case)
        if work is not None:
            info.update(rates(work, latency), bytes=work.traffic.total)
        info.update(roof.facts(latency) if roof is not None else {"roofline_note": f"no roofline: {why_none}"})
        if self.session.card.limits is not None:
            info["limits"] = self.session.card.limits.facts()
        if self._outcome.compared is not None:
            info["baseline"] = self._outcome.compared.verdict
        return info

    def _judged(self, cases: Cases, workload: Workload) -> Outcome:
        definition = cases.definition
        durations = self._measured.durations
        return self.session.gates.judge(self.item, definition, durations, lambda: self._reference(cases, workload))

    def _reference(self, cases: Cases, workload: Workload) -> float | None:
        """Return the reference's latency in seconds; `None` where it cannot run."""
        durations = self._reference_times(cases, workload)
        return median(durations) if durations else None

    def _reference_times(self, cases: Cases, workload: Workload, measurements: int = 1) -> list[float]:
        """Return the reference's durations, of at least so many measurements; empty where it cannot run."""
        key = (self.item.path, workload.uuid)
        return self.session.reference_times(
            *key, lambda attempt: self._reference_seconds(cases, workload, attempt), measurements
        )

    def _reference_seconds(self, cases: Cases, workload: Workload, attempt: int) -> list[float]:
        """Return the durations of one measurement; none where the clocks contradict each other each time."""
        try:
            with self._solution.paused() if self._solution is not None else nullcontext():  # it must not slow this down
                for again in range(_TRIES):
                    measured = self._measure(self.reference, cases, workload, attempt + again * _MEASUREMENTS)
                    if measured.contradiction is None:
                        return measured.durations
                return []
        except Failed:  # it cannot be built as a solution is; the solution is not blamed
            return []

    def _hold_to_language(self, solution: UnderTest) -> None:
        ran = [pair for span in self._measured.spans for pair in zip(span.kernels, span.kernel_seconds, strict=False)]
        found = policy.share(solution.solution, ran)
        if found is not None:
            Record(self.item).set("kernels", found.text)
        reason = policy.objection(solution.solution, found)
        if reason is None:
            return
        if self.session.options.policy == "custom-kernel":
            raise Failed(Verdict("REWARD_HACK", reason), self._measured.calls[-1].case)
        self.item.warn(pytest.PytestWarning(f"{solution.solution.name}: {reason}"))
