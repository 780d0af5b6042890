"""From synthetic activity records to calls."""

from __future__ import annotations

import pytest

from pytest_flashinfer.worker.cupti import Record
from pytest_flashinfer.worker.marks import Mark, assign

VALUE = 7
MARK = Mark(4, 8, 12)


def memset(size, correlation, start):
    return Record(start, start + 500, correlation, "memset", size, VALUE)


def marks_at(before=1000, after=9000, closed=12000, first=10):
    return [memset(4, first, before), memset(8, first + 10, after), memset(12, first + 20, closed)]


def kernel(correlation, start, end, name="k"):
    return Record(start, end, correlation, name)


def test_a_call_spans_its_first_start_to_its_last_end_over_all_streams():
    records = [kernel(12, 3000, 5000, "b"), kernel(11, 2000, 4000, "a"), *marks_at()]
    (activity,) = assign([MARK], records, VALUE)
    assert activity.seconds == pytest.approx(3e-6)
    assert activity.kernels == ("a", "b")
    assert not activity.late


def test_the_harness_own_work_between_calls_is_nobodys():
    records = [kernel(5, 0, 900, "flush"), kernel(11, 2000, 3000), kernel(35, 20000, 21000, "copy"), *marks_at()]
    (activity,) = assign([MARK], records, VALUE)
    assert activity.kernels == ("k",)


def test_work_that_outlives_the_mark_is_late():
    assert assign([MARK], [kernel(11, 2000, 9500), *marks_at()], VALUE)[0].late
    assert not assign([MARK], [kernel(11, 2000, 9050), *marks_at()], VALUE)[0].late  # less than the clock's own jitter


def test_work_launched_after_the_return_is_late_and_counted():
    (activity,) = assign([MARK], [kernel(11, 2000, 3000), kernel(22, 9600, 11000), *marks_at()], VALUE)
    assert activity.late
    assert activity.seconds == pytest.approx(9e-6)


def test_work_that_starts_before_the_call_s_mark_on_a_stream_of_its_own_belongs_to_the_call():
    (activity,) = assign([MARK], [kernel(11, 200, 3000), *marks_at()], VALUE)
    assert activity.seconds == pytest.approx(2.8e-6)


def test_calls_are_told_apart_by_their_marks():
    second = Mark(16, 20, 24)
    records = [
        *marks_at(),
        kernel(11, 2000, 3000, "first"),
        memset(16, 40, 30000),
        kernel(41, 31000, 33000, "second"),
        Record(31500, 31600, 42, "memset", 4, 0),  # the solution's own, of a mark's size
        memset(20, 43, 34000),
        memset(24, 44, 36000),
    ]
    one, two = assign([MARK, second], records, VALUE)
    assert one.kernels == ("first",)
    assert two.kernels == ("second", "memset")
    assert two.seconds == pytest.approx(2e-6)


def test_a_lost_mark_gives_no_activity_and_no_work_takes_no_time():
    assert assign([MARK], marks_at()[:2], VALUE) == [None]
    (activity,) = assign([MARK], marks_at(), VALUE)
    assert (activity.seconds, activity.kernels, activity.late) == (0.0, (), False)
    assert activity.window == pytest.approx(7.5e-6)
