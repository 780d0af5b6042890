from __future__ import annotations

import contextlib
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.worker.clock import Span, open_clock
from pytest_flashinfer.worker.processor_time import ProcessorTime
from pytest_flashinfer.worker.runner import Output
from pytest_flashinfer.worker.timing import disagreement, hidden, measure, steady, warm_up


class Scripted:
    """A clock whose readings are given: the first call took the first of `seconds`, and so on; the last repeats."""

    def __init__(self, *seconds):
        self.seconds, self.calls, self.unread = list(seconds), 0, 0

    @contextlib.contextmanager
    def span(self):
        yield
        self.calls, self.unread = self.calls + 1, self.unread + 1

    def read(self):
        first, self.unread = self.calls - self.unread, 0
        return [Span(self.seconds[min(call, len(self.seconds) - 1)], 1e-5) for call in range(first, self.calls)]

    def skip(self):
        return [span.seconds for span in self.read()]


def test_warm_up_ends_when_times_have_settled():
    clock = Scripted(9.0, 9.0, 9.0, 2.0, 2.0, 2.0, 1.0)
    assert warm_up(clock, lambda: None) == 12  # 9, then 2, then 1 twice
    assert clock.calls == 12


def test_warm_up_ends_though_times_never_settle():
    assert warm_up(Scripted(*[1.5**-call for call in range(100)]), lambda: None) == 30


def test_the_number_of_timed_calls_is_the_one_asked_for():
    calls = []
    assert len(measure(open_clock("cpu"), lambda: calls.append(1), launches=7)) == 7


def test_steady_allows_for_short_kernels_what_events_may_be_off():
    assert steady(2.0e-6, 2.9e-6)
    assert not steady(2.0e-6, 3.1e-6)
    assert steady(1.00e-3, 1.01e-3)
    assert not steady(float("inf"), 1e-3)


def spans(seconds, *, events=None, wall=None, host=2e-5, late=False):
    events = seconds + 2e-6 if events is None else events
    wall = seconds + 1e-5 if wall is None else wall
    return [Span(seconds, host, events, wall, ("k",), late, "cupti")] * 5


def test_clocks_that_agree():
    assert disagreement(spans(1e-3)) is None
    assert disagreement(spans(1e-3), judge_seconds=0.006) is None
    assert disagreement(spans(2e-6, events=4e-6)) is None
    assert disagreement(spans(1e-3, events=2.9e-3, wall=2.9e-3, host=2e-3)) is None  # the device waited for the host
    assert disagreement(spans(1e-3, events=1e-4, late=True)) is None  # a verdict of its own
    assert disagreement([Span(1e-3, 1e-3)]) is None
    assert disagreement(spans(1e-3), on_card=True) is None


@pytest.mark.parametrize(
    "taken",
    [
        [Span(1e-6, 1e-6)],
        [Span(1e-6, 1e-6, source="cupti")],
        [Span(1e-6, 1e-6, 1e-6, None, source="cupti")],
        [Span(1e-6, 1e-6, 1e-6, 1e-6, source="wall")],
        [*spans(1e-3), Span(1e-6, 1e-6, source="cupti")],
    ],
)
def test_a_card_s_time_does_not_stand_without_its_events(taken):
    assert "CUDA events" in disagreement(taken, on_card=True)


@pytest.mark.parametrize(
    ("taken", "judge", "message"),
    [
        (spans(1e-5, wall=1e-3), None, r"the device was busy for 1000\.0 us where the clock says 10\.0 us"),
        (spans(1e-5, events=1e-3, wall=5e-5), None, r"CUDA events say 1000\.0 us where the clock says 10\.0 us"),
        (spans(1e-3, events=1e-4), None, r"CUDA events say 100\.0 us where the clock says 1000\.0 us"),
        (spans(1e-3), 0.001, r"the worker's clock says 5\.000 ms where the judge waited 1\.000 ms"),
    ],
)
def test_clocks_that_contradict_each_other(taken, judge, message):
    import re

    assert re.fullmatch(message, disagreement(taken, judge) or "")


@given(
    seconds=st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=9),
    rest=st.floats(0.0, 8e-3),
    nbytes=st.integers(0, 1 << 32),
    queued=st.floats(0.0, 60.0),
    slept=st.floats(0.0, 60.0),
    spun=st.floats(0.0, 60.0),
)
def test_what_is_done_around_a_call_and_what_a_busy_machine_makes_of_it_hides_nothing(  # noqa: PLR0913, PLR0917
    seconds, rest, nbytes, queued, slept, spun
):
    """Threads that have nothing to do spin, also while the machine is too busy for the one that answers."""
    told, worked = [each + 5e-5 for each in seconds], rest + 2e-9 * nbytes
    for more, other in ((slept, 0.0), (0.0, spun)):
        waited = [each + worked + queued + more for each in told]
        used = [within(each, worked + other, queued) for each in seconds]
        assert hidden([Span(each, each) for each in seconds], told, waited, used, nbytes) is None


def within(seconds, more, queued=0.0):
    """Return the time of a worker that had all processors for a call's seconds, and more besides."""
    return ProcessorTime((os.cpu_count() or 1) * seconds + more, queued)


@given(st.floats(1e-6, 1.0), st.floats(2.0, 1e6))
def test_a_clock_that_says_less_than_the_answers_had_said_is_not_believed(seconds, times):
    told = [times * seconds + 3e-4] * 5
    assert "its answers had said" in hidden([Span(seconds, seconds)] * 5, told, told, [ProcessorTime()] * 5, 0)


@given(st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_most_of_a_long_call_cannot_be_done_behind_the_clock(seconds, more):
    waited, used = [2 * seconds + 3e-2 + more] * 5, [within(seconds, seconds + 2e-2 + more, queued=1e-2)] * 5
    assert "it worked" in hidden([Span(seconds, seconds)] * 5, [seconds] * 5, waited, used, 0)


def test_what_a_worker_does_behind_the_clock_is_counted_as_its_work(lab):
    source = (
        "import sys, time\n"
        "def late(n):\n    end = time.process_time() + n\n    while time.process_time() < end: pass\n"
        "class Late:\n    def __del__(self): late(0.03)\n"
        "def run(x):\n    f = sys._getframe(1)\n"
        "    while f.f_code.co_name != '_call': f = f.f_back\n"
        "    f.f_locals['arguments'].append(Late())\n    return x + 1\n"
    )
    runner = lab.build(source, destination=False)
    output = Output("y", (4, 8), torch.float32)
    results = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(5)], [output], cache="cold")
    assert all(result.processor.worked > 0.02 for result in results)
    assert min(result.span.seconds for result in results) < 0.02 < min(result.round_trip for result in results)
    honest = lab.build("import time\ndef run(x):\n    time.sleep(0.05)\n    return x + 1\n", destination=False)
    result = lab.run_many(honest, [{"x": lab.randn(4, 8)}], [output], cache="cold")[0]
    assert 0 < result.processor.worked < 0.04
    assert result.round_trip > 0.05
