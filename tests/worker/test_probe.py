"""A card without a known data sheet is measured, by a worker of the judge's own; here with a simulated clock."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from pytest_flashinfer.judge import probing
from pytest_flashinfer.worker import probe
from pytest_flashinfer.worker.clock import Span
from pytest_flashinfer.worker.errors import WorkerDied


class Clock:
    def __init__(self):
        self.calls = 0

    @contextlib.contextmanager
    def span(self):
        yield
        self.calls += 1

    def read(self):
        return [Span(1.0 + abs(number - 3), 0.0) for number in range(self.calls)]


def test_the_best_run_counts():
    done = []
    assert probe.best(Clock(), lambda: done.append(1)) == 1.0
    assert len(done) == 10


class Pool:
    def __init__(self, reply):
        self.reply, self.closed = reply, 0

    def worker(self, handler, *, successor):
        assert handler == probe.__name__
        assert not successor
        return self

    def call(self, request, timeout):
        assert request == {"do": "probe"}
        assert timeout > 0
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def close(self):
        self.closed += 1


def test_a_known_card_is_not_measured():
    assert probing.limits_of("NVIDIA H100 80GB HBM3", None).source == "data sheet"


def test_an_unknown_card_is():
    pool = Pool({"bandwidth": 9e11, "matrix": {"float16": 1e14, "float32": "?"}})
    limits = probing.limits_of("NVIDIA New", pool)
    assert (limits.bandwidth, limits.matrix, limits.source) == (9e11, {"float16": 1e14}, "measured")
    assert pool.closed == 1


@pytest.mark.parametrize(
    "reply",
    [{}, {"bandwidth": 0, "matrix": {}}, {"bandwidth": 1.0}, WorkerDied("gone"), {"bandwidth": "1", "matrix": {}}],
)
def test_without_limits_there_is_no_share(reply):
    assert probing.limits_of("NVIDIA New", Pool(reply)) is None


def test_the_probe_is_a_handler():
    assert SimpleNamespace(**vars(probe)).warm("cpu") is None
    assert callable(probe.call)
