from __future__ import annotations

import time

import pytest

from pytest_flashinfer.worker.clock import open_clock


def test_wall_clock_times_each_call_and_forgets_what_was_read():
    clock = open_clock("cpu")
    for pause in (0.002, 0.004):
        with clock.span():
            time.sleep(pause)
    first, second = clock.read()
    assert 0.002 <= first.seconds < 0.1
    assert 0.004 <= second.seconds < 0.1
    assert first.host_seconds == first.seconds
    assert (first.source, first.kernels, first.late) == ("wall", (), False)
    assert clock.read() == []


def test_a_call_that_raises_leaves_no_span():
    clock = open_clock("cpu")
    with pytest.raises(ZeroDivisionError), clock.span():
        _ = 1 / 0
    assert clock.read() == []


def test_wall_clock_is_bound_before_a_solution_can_replace_the_timer(monkeypatch):
    clock = open_clock("cpu")
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    with clock.span():
        time.sleep(0.001)
    assert clock.read()[0].seconds >= 0.001
