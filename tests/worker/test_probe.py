"""A card without a known data sheet is measured, by a worker of the judge's own; here with a simulated clock."""

from __future__ import annotations

import contextlib

import pytest
import torch

from pytest_flashinfer.judge.performance import cards, probing
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


def test_an_unknown_card_is_measured():
    pool = Pool({"bandwidth": 9e11, "matrix": {"float16": 1e14, "float32": "?"}})
    limits = probing.measured(pool)
    assert (limits.bandwidth, limits.matrix, limits.source) == (9e11, {"float16": 1e14}, "measured")
    assert pool.closed == 1


@pytest.mark.parametrize(
    "reply",
    [{}, {"bandwidth": 0, "matrix": {}}, {"bandwidth": 1.0}, WorkerDied("gone"), {"bandwidth": "1", "matrix": {}}],
)
def test_without_limits_there_is_no_share(reply):
    assert probing.measured(Pool(reply)) is None


def test_a_worker_that_cannot_measure_costs_nothing_but_the_limits(cpu_pool):
    if torch.cuda.is_available():
        pytest.skip("here it can")
    assert probing.measured(cpu_pool) is None


@pytest.mark.gpu
def test_a_card_is_measured_as_its_data_sheet_has_it(gpu_pool):
    listed, found = cards.known(torch.cuda.get_device_name()), probing.measured(gpu_pool)
    assert found.source == "measured"
    if listed is not None:
        assert 0.6 < found.bandwidth / listed.bandwidth < 1.05
        assert 0.4 < found.matrix["bfloat16"] / listed.matrix["bfloat16"] < 1.15
