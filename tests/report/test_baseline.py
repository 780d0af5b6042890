"""Verdicts against an earlier run: intervals of medians, and a threshold."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.report import baseline_summary
from pytest_flashinfer.report.baseline import BaselineError, Interval, compare, interval, read, timings
from pytest_flashinfer.report.results import Result

SECONDS = st.floats(1e-7, 10)


def exact(median):
    return Interval(median, median, median, 10)


@pytest.mark.parametrize(
    ("rounds", "low", "high"), [(1, 1, 1), (2, 1, 2), (6, 1, 6), (9, 2, 8), (10, 2, 9), (20, 6, 15)]
)
def test_intervals_by_order(rounds, low, high):
    found = interval([float(n) for n in range(rounds, 0, -1)])
    assert (found.low, found.median, found.high, found.rounds) == (low, (rounds + 1) / 2, high, rounds)


@pytest.mark.parametrize("rounds", [999, 1000, 1001, 1040, 1500, 2001, 5000])
def test_intervals_of_many_rounds(rounds):
    """As integers have it, which never overflow, but for one round of the normal limit."""
    tail, outer = 0, 0
    while 20 * 2 * (tail := tail + math.comb(rounds, outer)) <= 2**rounds:
        outer += 1
    found = interval([float(n) for n in range(rounds)])
    assert abs(found.low - (outer - 1)) <= (rounds > 1000)
    assert found.high == rounds - 1 - found.low


@pytest.mark.parametrize("rounds", [6, 10, 20])
def test_the_interval_holds_the_true_median_as_often_as_it_says(rounds):
    rng = random.Random(rounds)
    intervals = [interval([rng.expovariate(1.0) for _ in range(rounds)]) for _ in range(2000)]
    assert sum(each.low <= 0.6931 <= each.high for each in intervals) > 0.94 * len(intervals)


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_an_interval_is_around_its_median(durations):
    found = interval(durations)
    assert min(durations) <= found.low <= found.median <= found.high <= max(durations)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (exact(1.0), exact(1.0), "SAME"),
        (exact(1.0), exact(1.04), "SAME"),
        (exact(1.0), exact(1.06), "SLOWER"),
        (exact(1.06), exact(1.0), "FASTER"),
        (exact(1.0), Interval(0.9, 1.2, 1.3, 10), "UNDECIDED"),
        (exact(1.0), Interval(3.0, 3.0, 3.0, 1), "UNDECIDED"),
        (Interval(3.0, 3.0, 3.0, 1), exact(1.0), "UNDECIDED"),
        (Interval(0.8, 1.0, 1.3, 10), Interval(1.2, 1.4, 1.5, 10), "UNDECIDED"),
        (Interval(0.5, 1.0, 1.5, 10), exact(1.0), "UNDECIDED"),
        (exact(1.0), Interval(1.01, 1.04, 1.2, 10), "UNDECIDED"),
        (Interval(0.99, 1.0, 1.01, 10), Interval(1.99, 2.0, 2.01, 10), "SLOWER"),
        (exact(1.0), exact(0.0), "FASTER"),
    ],
)
def test_verdicts(old, new, verdict):
    assert compare(old, new, 0.05).verdict == verdict


@given(st.lists(SECONDS, min_size=1, max_size=20), st.lists(SECONDS, min_size=1, max_size=20), st.floats(0.001, 1))
def test_turned_round_a_verdict_is_its_opposite(old, new, threshold):
    opposite = {"SLOWER": "FASTER", "FASTER": "SLOWER"}
    forth, back = (compare(interval(a), interval(b), threshold).verdict for a, b in ((old, new), (new, old)))
    assert back == opposite.get(forth, forth)


def test_one_line():
    line = compare(Interval(9.9e-6, 1e-5, 1.01e-5, 10), Interval(1.19e-5, 1.2e-5, 1.21e-5, 10), 0.05).line
    assert line == "SLOWER: 12 us against 10 us (+20.0%, within +17.8% to +22.2%; threshold 5.0%)"


def document(**changes):
    stats = {"data": [1.0, 2.0, 3.0], "rounds": 3, "median": 2.0, "iqr": 1.0}
    bench = {"fullname": "a.json::test_speed[x]", "stats": stats, "extra_info": {"device": "CARD"}}
    return {"machine_info": {"flashinfer": {"card": "CARD"}}, "benchmarks": [bench]} | changes


def written(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_of_pytest_benchmark(tmp_path):
    baseline = read(written(tmp_path, document()))
    assert baseline.card == "CARD"
    assert baseline.entries == {"a.json::test_speed[x]": Interval(1.0, 2.0, 3.0, 3)}
    assert read(written(tmp_path, document(machine_info={}))).card == "CARD"


def test_saved_without_its_rounds(tmp_path):
    content = document()
    content["benchmarks"][0]["stats"] = {"rounds": 100, "median": 2.0, "iqr": 1.0}
    (found,) = read(written(tmp_path, content)).entries.values()
    assert (found.low, found.median, found.high) == (2 - 0.157, 2.0, 2 + 0.157)


def test_what_took_no_time_is_compared_with_nothing(tmp_path):
    content = document()
    content["benchmarks"][0]["stats"]["data"] = [0.0, 0.0]
    assert read(written(tmp_path, content)).entries == {}


def test_an_empty_file_may_be_the_one_that_is_being_written(tmp_path):
    (tmp_path / "run.json").touch()
    with pytest.raises(BaselineError, match=r"run\.json is empty: if --benchmark-json names it too, write to another"):
        read(tmp_path / "run.json")


@pytest.mark.parametrize("content", [" ", "[]", "{}", '{"benchmarks": [{}]}', '{"benchmarks": 3}', "\x00"])
def test_another_file_is_refused_in_one_line(tmp_path, content):
    with pytest.raises(BaselineError, match=r"run\.json is no JSON of pytest-benchmark") as caught:
        read(written(tmp_path, content))
    assert str(caught.value).endswith("; --benchmark-json=FILE writes one")
    assert "\n" not in str(caught.value)
    assert "Error" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BaselineError, match="cannot be read: No such file"):
        read(tmp_path / "none.json")


def test_lines_at_the_end():
    def result(compared, solution="good", *, resumed=False):
        facts = {"latency": 1e-6, "compared": compared, "resumed": resumed}
        return Result("d", solution, "me", "test_speed", "w", "passed", **facts)

    compared = [result("SAME: 1"), result("SLOWER: 2", "bad"), result("FASTER: 3")]
    found = list(baseline_summary.lines([*compared, result("", resumed=True)]))
    assert found[0] == ("", "1 SLOWER, 1 FASTER, 1 SAME")
    assert found[1:] == [("SLOWER", "d bad w: SLOWER: 2"), ("FASTER", "d good w: FASTER: 3")]
    assert list(baseline_summary.lines([*compared, result("")]))[1] == ("", "3 of 4 timings are in the baseline")
    assert list(baseline_summary.lines([result("")])) == [("", "0 of 1 timings are in the baseline")]
    assert list(baseline_summary.lines([])) == []


@given(st.floats(1e-9, 1e3), st.floats(0, 1e3), st.integers(2, 10_000))
def test_without_its_rounds_a_wide_spread_leaves_it_open(median, spread, rounds):
    stats = {"rounds": rounds, "median": median, "iqr": spread * median}
    text = json.dumps({"benchmarks": [{"fullname": "a", "stats": stats}]})
    found = timings(Path("saved.json"), text).entries["a"]
    assert 0 < found.low <= found.median <= found.high
    if spread > math.sqrt(rounds):
        assert compare(found, exact(median), 0.05).verdict == "UNDECIDED"
