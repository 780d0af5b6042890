"""Replies of a worker are read with distrust: what cannot be a time is none."""

from __future__ import annotations

import math

import pytest

from pytest_flashinfer.worker import replies

WALL = {"seconds": 1e-5, "host_seconds": 1e-5, "event_seconds": None, "wall_seconds": None, "source": "wall"}
CARD = {"seconds": 1e-5, "host_seconds": 2e-5, "event_seconds": 1.2e-5, "wall_seconds": 3e-5, "source": "cupti"}


@pytest.mark.parametrize(
    "reply",
    [
        WALL,
        CARD,
        {**CARD, "seconds": 0.0},  # no activity
        {**CARD, "source": "events", "seconds": 0},
        {**CARD, "event_seconds": 0.0, "wall_seconds": 0.0},
        {"host_seconds": 1},
    ],
)
def test_honest_times_stand(reply):
    assert replies.no_time(reply) == []


NEVER = [-1.0, -1e308, 5e-324, 1e308, math.inf, -math.inf, math.nan, True, "1.0", [1.0], 10**30]


@pytest.mark.parametrize("value", NEVER)
@pytest.mark.parametrize("key", ["seconds", "host_seconds", "event_seconds", "wall_seconds"])
def test_what_cannot_be_a_time_is_named_and_not_calculated_with(key, value):
    reply = {**CARD, key: value}
    if key in ("event_seconds", "wall_seconds") and value == 5e-324:
        return
    [found] = replies.no_time(reply)
    assert (found.kind, key in found.message) == ("clock", True)
    if value is not True:
        assert getattr(replies.span(reply), key) == 0


@pytest.mark.parametrize(
    "reply",
    [{**WALL, "seconds": 0}, {**WALL, "host_seconds": 0.0}, {**CARD, "host_seconds": None}, {"host_seconds": None}],
)
def test_a_call_always_takes_the_host_some_time(reply):
    assert replies.no_time(reply)


def test_the_times_of_kernels_are_times():
    span = replies.span({**CARD, "kernel_seconds": [1e-6, -1.0, math.inf, "x", 1e308]})
    assert span.kernel_seconds == (1e-6, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("numbers", [[0, 1, 0], [0, 7, 1, -1, True, "b", None, 0]])
def test_kernels_have_the_names_that_their_numbers_stand_for(numbers):
    assert replies.span({**CARD, "kernels": numbers}, ("a", "b")).kernels == ("a", "b", "a")


@pytest.mark.parametrize("numbers", [None, "ab", {"0": 1}, 3])
def test_what_is_no_list_of_numbers_names_no_kernels(numbers):
    assert replies.span({**CARD, "kernels": numbers}, ("a", "b")).kernels == ()
