"""One measurement: what is called, what counts, and what is not believed; on a kernel that is simulated."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.judge.performance.cards import Limits
from pytest_flashinfer.run.session import FibSession
from pytest_flashinfer.solution_call import Call, Failed
from pytest_flashinfer.timing import measurement, timed_calls
from pytest_flashinfer.timing.gates import Outcome
from pytest_flashinfer.timing.measurement import Measurement, joined, measure
from pytest_flashinfer.timing.timed_calls import Timing
from pytest_flashinfer.worker import lock
from pytest_flashinfer.worker.card_sharing import Turns
from pytest_flashinfer.worker.clock import Span
from pytest_flashinfer.worker.errors import CallFailed
from pytest_flashinfer.worker.guards import Violation
from pytest_flashinfer.worker.lock import LockedOut
from pytest_flashinfer.worker.outcome import RunResult
from tests.judge.test_roofline import shipped

US = 1e-6
WORKLOAD = SimpleNamespace(uuid="w", axes={"M": 3})


def call(case="case", device=10 * US, host=2 * US, source="cupti", **fields):
    span = Span(device, host, device, device, source=source, **fields) if source != "wall" else Span(device, host)
    result = RunResult({"y": torch.zeros(2)}, [], span=span, round_trip=1e-3, host_seconds=5e-3)
    return Call(case, result)


class Kernel:
    """Takes the durations given, in microseconds, for its timed calls in turn; then the last one again."""

    solution = SimpleNamespace(name="good", language="python")
    standing = writes_inputs = False

    def __init__(self, *durations, fails_at=None, source="cupti"):
        self.durations = itertools.chain(durations, itertools.repeat(durations[-1]))
        self.asked, self.warmed, self.fails_at, self.source = [], [], fails_at, source
        self.took, self.called = {}, set()
        self.ended = []  # after how many measurements its process was ended

    def close(self):
        self.ended.append(sum(cache is not None for _, cache in self.asked))
        self.called.clear()

    @contextlib.contextmanager
    def paused(self):
        self.standing = True
        yield
        self.standing = False

    def run(self, cases, *, cache=None, warm=None):
        assert not self.standing
        cases = list(cases)
        self.asked.append((len(cases), cache))
        self.warmed.append(warm)
        if len(self.asked) - 1 == self.fails_at:
            return [Call(cases[0], error=CallFailed("raised", ""))]
        took = [next(self.durations) * US if cache else 1.0 for _ in cases]
        return [call(case, device, source=self.source) for case, device in zip(cases, took, strict=True)]


class Cases:
    def __init__(self, case):
        self.case, self.definition, self.attempts = case, case.definition, []

    def first(self, workload):
        return self.case

    def timed(self, workload, rounds, attempt=0):
        self.attempts.append(attempt)
        return iter([self.case] * rounds)


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "shared_folder", lambda: tmp_path)
    device = SimpleNamespace(kind="cuda", uuid="GPU-1", name="CARD")

    @contextlib.contextmanager
    def throttling():
        facts = {}
        yield facts
        facts["throttle"] = []

    return SimpleNamespace(
        device=device,
        options=SimpleNamespace(cache="cold", policy="any"),
        pool=SimpleNamespace(quiet=lambda: None),
        progress=SimpleNamespace(doing=contextlib.nullcontext),
        card=SimpleNamespace(
            watch=SimpleNamespace(throttling=throttling),
            turns=Turns("GPU-1", lambda: None),
            limits=Limits(1e12, {"float16": 1e15}, "data sheet"),
        ),
        gates=SimpleNamespace(judge=lambda *_: Outcome()),
        reference_times=lambda *_: [20 * US] * 10,
    )


@pytest.fixture
def cases():
    return Cases(shipped("gemm/gemm_n128_k2048", {"M": 3}))  # 0.54 us at 1 TB/s


def test_a_card_is_warmed_up_ahead_of_the_rounds_that_count(session, cases):
    kernel = Kernel(10)
    found = measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == [(2, None), (10, "cold")]
    assert kernel.warmed == [None, cases.case]
    assert found.durations == [10 * US] * 10
    assert found.host == 2 * US, "the call's own, without what the harness does around it"
    assert (found.clock, found.clock_note, found.noise) == ("device (CUPTI)", "", 0)
    assert found.card == {"throttle": []}


@pytest.mark.parametrize(("language", "calls"), [("python", 1), ("triton", 2)])
def test_what_is_not_compiled_for_each_workload_is_called_once_ahead_of_another(
    session, cases, monkeypatch, language, calls
):
    monkeypatch.setattr(Kernel, "solution", SimpleNamespace(name="good", language=language))
    kernel = Kernel(10)
    kernel.called.add("another")
    measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == [(calls, None), (10, "cold")]


@pytest.mark.parametrize(("language", "calls"), [("python", [(10, "cold")]), ("triton", [(2, None), (10, "cold")])])
def test_a_new_process_that_has_loaded_all_is_not_called_ahead_of_what_is_known(
    session, cases, monkeypatch, language, calls
):
    monkeypatch.setattr(Kernel, "solution", SimpleNamespace(name="good", language=language))
    kernel = Kernel(10)
    kernel.took.update(another=1e-3, w=1e-3)
    kernel.called.add("another")
    measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == calls


@pytest.mark.parametrize(("known", "ahead"), [({"another"}, 1), (set(), 2)], ids=["one", "two"])
@pytest.mark.parametrize("last", [1e-3, 7e-3])
def test_calls_ahead_that_took_long_are_followed_by_another(session, cases, known, ahead, last):
    kernel, times, rounds = Kernel(10), iter((8e-3, last)), 10 if last < 5e-3 else 4
    kernel.called.update(known)
    run = kernel.run

    def timed(todo, *, cache=None, warm=None):
        if cache is None:
            kernel.took["w"] = min(next(times), kernel.took.get("w", 1.0))
        return run(todo, cache=cache, warm=warm)

    kernel.run = timed
    found = measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == [(ahead, None), (1, None), (rounds, "cold")]
    assert len(found.calls) == ahead + 1 + rounds


@pytest.mark.parametrize(("took", "rounds", "warmed"), [(1e-3, 10, True), (6e-3, 4, True), (0.2, 2, False)])
def test_a_call_that_takes_long_on_a_card_is_timed_less_often(session, cases, took, rounds, warmed):
    kernel = Kernel(10)
    kernel.took["w"] = took
    kernel.called.add("w")
    measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == [(rounds, "cold")]
    assert kernel.warmed == [cases.case if warmed else None]


def test_what_changes_its_inputs_is_called_once_more_ahead(session, cases):
    kernel = Kernel(10)
    kernel.writes_inputs = True
    kernel.took["w"] = 1e-3
    kernel.called.add("w")
    measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == [(1, None), (10, "cold")]


def test_the_cpu_needs_no_batches(session, cases):
    session.device = SimpleNamespace(kind="cpu", uuid="", name="CPU")
    kernel = Kernel(10, source="wall")
    found = measure(session, kernel, cases, WORKLOAD)
    assert kernel.asked == [(1, None), (5, "cold")]
    assert found.clock == "wall clock"


def test_a_call_that_takes_long_on_the_cpu_is_timed_once_and_needs_no_other_ahead(session, cases):
    session.device = SimpleNamespace(kind="cpu", uuid="", name="CPU")
    kernel = Kernel(10, source="wall")
    kernel.took["w"] = 3.0
    found = measure(session, kernel, cases, WORKLOAD)
    assert (kernel.asked, found.complete, len(found.durations)) == ([(1, "cold")], True, 1)


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_call_that_fails_ends_the_measurement(session, cases, fails_at):
    kernel = Kernel(10, fails_at=fails_at)
    found = measure(session, kernel, cases, WORKLOAD)
    assert not found.complete
    assert found.durations == []
    assert found.calls[-1].error is not None


def test_the_clock_says_why_it_is_the_fallback():
    calls = call(source="events", note="no CUPTI"), call(source="events", note="no CUPTI")
    found = Measurement((), calls, on_card=True)
    assert (found.clock, found.clock_note) == ("device (CUDA events)", "no CUPTI")
    assert found.contradiction is None


def test_outputs_without_device_work_are_not_believed():
    assert "the device did nothing" in Measurement((), (call(device=0.0), call(device=0.0)), on_card=True).contradiction
    assert Measurement((), (call(device=0.0, source="events"),), on_card=True).contradiction is None


def test_on_a_card_the_wall_clock_is_not_believed(session, cases):
    found = measure(session, Kernel(10, source="wall"), cases, WORKLOAD)
    assert "CUDA events" in found.contradiction


def test_what_is_no_time_leaves_nothing_to_calculate_with():
    without = call()
    without.result.violations.append(Violation("clock", "", "the worker's clock says -1.0"))
    found = Measurement((), (call(), without))
    assert not found.complete
    assert found.durations == []


def timed(session, cases, kernel, **options):
    item = SimpleNamespace(user_properties=[], path="a.json", nodeid="a.json::test_speed[x]", config=None)
    found = Timing(item, session, Kernel(20), **options)
    found.run(kernel, cases, WORKLOAD)
    return found


def facts(session, cases, kernel, **options):
    return timed(session, cases, kernel, **options)._facts(cases, WORKLOAD)


def test_what_is_kept_beside_the_durations(session, cases):
    info = facts(session, cases, Kernel(2))
    work = 2 * 3 * 128 * 2048
    moved = 2 * (3 * 2048 + 128 * 2048 + 3 * 128)
    assert info["speedup"] == pytest.approx(10)
    assert info["roofline_s"] == pytest.approx(moved / 1e12)
    assert info["roofline_share"] == pytest.approx(moved / 1e12 / (2 * US))
    assert info["roofline_bound"] == "memory"
    assert info["gb_per_s"] == pytest.approx(moved / (2 * US) / 1e9)
    assert info["tflop_per_s"] == pytest.approx(work / (2 * US) / 1e12)
    assert info["limits"] == {"bandwidth_gb_s": 1000.0, "matrix_tflop_s": {"float16": 1000.0}, "source": "data sheet"}
    assert info["throttle"] == []
    assert "roofline_note" not in info


def test_a_fixture_counts_the_operations(session, cases):
    info = facts(session, cases, Kernel(2), flops=lambda case: 1e9 * case.axes["M"])
    assert info["tflop_per_s"] == pytest.approx(3e9 / (2 * US) / 1e12)
    assert info["roofline_bound"] == "compute"


def test_without_limits_there_are_rates_and_a_reason(session, cases):
    session.card.limits = None
    info = facts(session, cases, Kernel(2))
    assert info["roofline_note"] == "no roofline: the limits of CARD are not known"
    assert info["gb_per_s"] > 0
    assert "roofline_share" not in info


def test_a_little_too_fast_is_flagged_and_far_too_fast_is_no_result(session, cases):
    assert "cache, or a wrong count" in facts(session, cases, Kernel(0.5))["roofline_note"]
    with pytest.raises(Failed, match=r"cannot be trusted: 0\.30 us is below the 0\.54 us that the card needs"):
        timed(session, cases, Kernel(0.3))


def test_warm_caches_may_be_faster_than_memory(session, cases):
    session.options.cache = "warm"
    assert facts(session, cases, Kernel(0.3))["roofline_share"] > 1


def test_what_is_unbelievable_once_is_measured_again(session, cases):
    kernel = Kernel(*[0.3] * 14, 2)
    assert facts(session, cases, kernel)["latency_s"] == pytest.approx(2 * US)
    assert cases.attempts == [0, 1], "each with contents of its own"


def test_a_solution_stands_still_while_its_reference_is_timed(session, cases, monkeypatch):
    session.reference_times = lambda _path, _uuid, measured, _measurements: measured(0)
    kernel, seen = Kernel(2), []

    def run(self, todo, *, cache=None, warm=None):
        seen.append((self is kernel, kernel.standing))
        return whole(self, todo, cache=cache, warm=warm)

    whole = Kernel.run
    monkeypatch.setattr(Kernel, "run", run)
    assert facts(session, cases, kernel)["reference_s"] == pytest.approx(20 * US)
    assert {standing for own, standing in seen if own} == {False}
    assert {standing for own, standing in seen if not own} == {True}
    assert not kernel.standing


def remeasured(session, cases, kernel, reference):
    """Time a kernel and its reference as test_speed does; return the timing and how often the reference was."""
    session.reference_times = partial(FibSession.reference_times, SimpleNamespace(_references={}))
    item = SimpleNamespace(user_properties=[], path="a.json", nodeid="a.json::test_speed[x]", config=None)
    found = Timing(item, session, reference)
    judged = found.run(kernel, cases, WORKLOAD)
    judged += found.remeasure(kernel, cases, WORKLOAD)
    assert {id(each) for each in found._measured.calls} == {id(each) for each in judged}
    return found, sum(cache is not None for _, cache in reference.asked)


UNSURE = [10, 10.6] * 25  # as of a kernel that is held up in every other call
LITTLE_LESS = [9.7, 10.3] * 25


def test_what_cannot_be_told_from_the_reference_is_measured_again(session, cases):
    kernel, reference = Kernel(*UNSURE), Kernel(*LITTLE_LESS)
    found, times = remeasured(session, cases, kernel, reference)
    assert len(found._measured.durations) == 50
    assert times == 5
    assert kernel.ended == reference.ended == [3, 4], "where a process has its memory makes it faster or slower"
    assert cases.attempts == [number // 2 for number in range(10)], "contents of its own each time, for both"
    assert found._facts(cases, WORKLOAD)["speedup"] == pytest.approx(1, rel=0.06)


@pytest.mark.parametrize(
    ("durations", "reference"),
    [([10] * 10, [10] * 10), (UNSURE, UNSURE), (UNSURE, [20, 22] * 5), ([10] * 10, [10.8] * 10)],
    ids=["surely alike", "alike as far as is known", "far apart", "surely apart"],
)
def test_what_can_be_told_is_measured_once(session, cases, durations, reference):
    found, times = remeasured(session, cases, Kernel(*durations), Kernel(*reference))
    assert len(found._measured.durations) == 10
    assert times == 1


def test_a_little_difference_of_two_processes_is_measured_in_others(session, cases):
    found, times = remeasured(session, cases, Kernel(*[10] * 50), Kernel(*[10.3] * 50))
    assert len(found._measured.durations) == 50
    assert times == 5


def test_a_few_long_rounds_are_not_made_more(session, cases):
    kernel = Kernel(*UNSURE)
    kernel.took["w"] = 8e-3
    found, times = remeasured(session, cases, kernel, Kernel(*LITTLE_LESS))
    assert len(found._measured.durations) == 4
    assert times == 0


def test_a_reference_that_cannot_be_timed_settles_nothing(session, cases):
    found, _ = remeasured(session, cases, Kernel(*UNSURE), Kernel(*LITTLE_LESS, fails_at=1))
    assert len(found._measured.durations) == 10
    assert "speedup" not in found._facts(cases, WORKLOAD)


def test_a_call_that_fails_meanwhile_is_judged_like_any_other(session, cases):
    reference, kernel = Kernel(*LITTLE_LESS), Kernel(*UNSURE, fails_at=3)
    found, _ = remeasured(session, cases, kernel, reference)
    assert not found._measured.complete
    assert sum(call.error is not None for call in found._measured.calls) == 1


def test_gates_decide_by_all_rounds(session, cases):
    seen = []
    session.gates.judge = lambda _item, _definition, durations, _reference: seen.append(len(durations)) or Outcome()
    remeasured(session, cases, Kernel(*UNSURE), Kernel(*LITTLE_LESS))
    assert seen[-1] == 50


def test_throttling_of_any_measurement_is_reported(session):
    facts = [{"throttle": ["heat"], "sm_mhz": 1}, {"throttle": ["power"], "sm_mhz": 2}]
    found = joined(*(Measurement((), (call(),), each) for each in facts))
    assert found.card == {"throttle": ["heat", "power"], "sm_mhz": 2}
    assert len(found.timed) == 2


def test_a_count_that_fails_costs_the_roofline_only(session, cases, monkeypatch):
    def broken(*_):
        raise timed_calls.WorkError("odd: flops 'x': no")

    monkeypatch.setattr(timed_calls, "work_of", broken)
    info = facts(session, cases, Kernel(2))
    assert info["roofline_note"] == "no roofline: odd: flops 'x': no"
    assert info["latency_s"] == pytest.approx(2 * US)


def test_a_card_that_is_never_free_is_not_timed(session, cases, monkeypatch):
    def never(*_):
        raise LockedOut("GPU-1 was not free for 1800 s: process 7 is timing on it")

    monkeypatch.setattr(timed_calls, "measure", never)
    with pytest.raises(pytest.skip.Exception, match="not timed: GPU-1 was not free"):
        timed(session, cases, Kernel(2))


def test_the_card_is_held_while_calls_are_timed_and_only_then(session, cases, tmp_path):
    kernel, held = Kernel(2), []

    def run(todo, *, cache=None, warm=None):
        with contextlib.suppress(LockedOut), lock.card_lock("GPU-1", tmp_path, most=0):
            held.append((cache, False))
            return Kernel.run(kernel, todo, cache=cache)
        held.append((cache, True))
        return Kernel.run(kernel, todo, cache=cache)

    kernel.run = run
    measure(session, kernel, cases, WORKLOAD)
    assert held[0] == (None, False)
    assert all(busy for cache, busy in held if cache)
    assert measurement.ROUNDS["cuda"][0.0] == kernel.asked[-1][0]
