"""pytest-benchmark reports the very durations that were played to it."""

from __future__ import annotations

import json

import pytest

from pytest_flashinfer.timing import stopwatch

DURATIONS = [1.25e-6, 3.0000000000000004e-06, 1e-9, 0.7310585786300049, 5e3, 1.25e-6]
FILE = f"""
import pytest
from pytest_flashinfer.timing import stopwatch

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.benchmark(timer=stopwatch.now)
def test_it(benchmark, number):
    durations = [number * each for each in {DURATIONS}]
    benchmark.pedantic(stopwatch.play(durations), setup=stopwatch.reset, rounds=len(durations), iterations=1)
"""


@pytest.fixture
def played(pytester):
    def run(*options):
        pytester.makepyfile(FILE)
        result = pytester.runpytest_inprocess("--benchmark-json=run.json", *options)
        result.assert_outcomes(passed=2)
        return json.loads((pytester.path / "run.json").read_text())["benchmarks"]

    return run


def test_durations_are_exactly_those_played(played):
    one, two = played("--benchmark-save-data")
    assert one["stats"]["data"] == DURATIONS
    assert two["stats"]["data"] == [2 * each for each in DURATIONS], "one item does not see the other's clock"
    assert (one["stats"]["min"], one["stats"]["max"]) == (1e-9, 5e3)
    assert one["stats"]["rounds"] == len(DURATIONS)
    assert one["stats"]["iterations"] == 1


@pytest.mark.parametrize("option", ["--benchmark-disable-gc", "--benchmark-warmup=on", "--benchmark-min-rounds=50"])
def test_options_for_real_clocks_change_nothing(played, option):
    assert played(option, "--benchmark-save-data")[0]["stats"]["data"] == DURATIONS


def test_a_profiled_run_calls_once_more(played):
    assert played("--benchmark-cprofile=tottime", "--benchmark-save-data")[0]["stats"]["data"] == DURATIONS


def test_the_clock_stands_still_by_itself():
    stopwatch.reset()
    assert stopwatch.now() == stopwatch.now() == 0
    tick = stopwatch.play([2.5])
    tick()
    assert stopwatch.now() == 2.5
    tick()
    assert stopwatch.now() == 2.5
    stopwatch.reset()
    assert stopwatch.now() == 0
