from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.worker.clock import Span, open_clock
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
    rest=st.floats(0.0, 4e-3),
    nbytes=st.integers(0, 1 << 32),
    late=st.floats(0.0, 60.0),
)
def test_what_a_judge_has_to_wait_for_anyway_hides_nothing(seconds, rest, nbytes, late):
    told = [each + 1e-5 for each in seconds]
    waited = [each + rest + 2e-9 * nbytes for each in told]
    waited[-1] += late if len(waited) > 1 else 0.0  # one answer may come late
    assert hidden([Span(each, each) for each in seconds], told, waited, nbytes) is None


@given(st.floats(1e-6, 1.0), st.floats(2.2, 1e6))
def test_a_clock_that_says_less_than_the_answers_had_said_is_not_believed(seconds, times):
    told = [times * seconds + 3e-5] * 5
    assert "its answers had said" in hidden([Span(seconds, seconds)] * 5, told, told, 0)


@given(st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_most_of_a_long_call_cannot_be_done_behind_the_clock(seconds, more):
    spans, waited = [Span(seconds, seconds)] * 5, [2 * seconds + 6e-3 + more] * 5
    assert "the judge waited" in hidden(spans, [seconds] * 5, waited, 0)
