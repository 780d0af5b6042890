"""Standings and their table: what counts, what is averaged, what fits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.report import table
from pytest_flashinfer.report.results import Result, Standing, standings, unread, without_wrong

RESULTS = st.builds(
    Result,
    definition=st.sampled_from(["a", "b"]),
    solution=st.sampled_from(["x", "y", "z"]),
    author=st.just("me"),
    check=st.sampled_from(["test_correct", "test_speed"]),
    workload=st.just("w"),
    outcome=st.sampled_from(["passed", "failed", "skipped"]),
    status=st.sampled_from([None, "PASSED", "TIMEOUT", "INCORRECT_NUMERICAL"]),
    latency=st.none() | st.floats(1e-9, 1e3),
    speedup=st.none() | st.floats(1e-3, 1e3),
    bound_share=st.none() | st.floats(0, 1),
)


def result(outcome="passed", *, solution="x", definition="d", **more):
    return Result(definition, solution, "me", "test_speed", "w", outcome, **more)


def only(*results):
    [[standing]] = standings(results).values()
    return standing


def text(results, width=200):
    return [line for line, _ in table.lines(standings(results), width)]


def test_a_failure_never_enters_a_mean():
    """A kernel that was fast because it did nothing does not raise a solution's numbers."""
    right = result(latency=2e-3, speedup=2.0, roofline=0.5, bound_share=0.25)
    wrong = result("failed", status="INCORRECT_NUMERICAL", latency=1e-9, speedup=1e6, roofline=1.0, bound_share=9.0)
    standing = only(right, wrong)
    assert (standing.passed, standing.total) == (1, 2)
    assert standing.latency == 2e-3
    assert standing.speedup == pytest.approx((2.0, 2.0, 2.0))
    assert (standing.rooflines, standing.bound_share) == ([0.5], 0.25)
    assert standing.failures == {"INCORRECT_NUMERICAL": 1}


@pytest.mark.parametrize("gated", [False, True])
def test_a_workload_on_which_another_check_failed_lends_no_number(gated):
    """Timed calls are few: they may be right where others are not."""
    wrong = replace(result("failed", status="INCORRECT_NUMERICAL"), check="test_correct")
    numbers = {"latency": 1e-9, "speedup": 1e6, "roofline": 1.0, "bound_share": 0.1, "compared": "FASTER: ..."}
    timed = result("failed" if gated else "passed", gated=gated, status="LOW_SPEEDUP" if gated else None, **numbers)
    other = replace(timed, workload="v")
    for order in ([wrong, timed, other], [other, timed, wrong]):
        found = without_wrong(order)
        assert {(each.workload, each.latency, each.compared) for each in found} == {
            ("w", None, ""),
            ("v", 1e-9, "FASTER: ..."),
        }
        assert only(*(each for each in found if each.workload == "w")).speedup is None
    elsewhere = [replace(wrong, solution="y"), replace(wrong, definition="e"), replace(wrong, workload=None)]
    assert timed in without_wrong([*elsewhere, timed])
    assert timed in without_wrong([replace(timed, outcome="failed", gated=True), timed]), "too slow is not wrong"


def test_a_workload_that_is_only_too_slow_is_right():
    slow = result("failed", status="SLOWER", gated=True, latency=1e-3)
    standing = only(replace(result(), check="test_correct"), slow)
    assert table.cells_of(standing)[2] == "1/1"
    assert table.cells_of(standing)[-1] == "1 SLOWER"
    assert table.cells_of(only(slow, replace(result("failed"), check="test_correct")))[2] == "0/1"


def test_what_only_failed_has_no_numbers():
    standing = only(result("failed", status="TIMEOUT", latency=1.0, speedup=1.0))
    assert standing.latency is standing.speedup is standing.bound_share is None


def test_what_was_skipped_does_not_count():
    standing = only(result("skipped", latency=1.0), result(latency=3.0))
    assert (standing.passed, standing.total, standing.latency) == (1, 1, 3.0)


def test_a_solution_of_which_nothing_ran_says_why():
    rows = [result("skipped", solution=name, message="no inputs: n > 3") for name in ("x", "y")]
    said = text([result(solution="z"), *rows])
    assert [line.split()[0] for line in said[2:5]] == ["z", "x", "y"]
    assert [line.endswith("skipped") for line in said[2:5]] == [False, True, True]
    assert said[5:] == ["  2 skipped: no inputs: n > 3"]
    assert not any("skipped" in line for line in text([result(), result("skipped", message="one of two")]))


def test_files_that_cannot_be_read_are_wrong_solutions():
    [found] = unread('[["d", "x"]]')
    assert only(found).failures == {"COMPILE_ERROR": 1}
    assert unread(None) == []


def test_latency_is_the_median_and_speedup_the_geometric_mean():
    standing = only(*(result(latency=n, speedup=n) for n in (1.0, 4.0, 16.0)))
    assert standing.latency == 4.0
    assert standing.speedup == pytest.approx((4.0, 1.0, 16.0))


def test_a_failure_without_a_verdict_has_a_name_too():
    assert only(result("failed")).failures == {"FAILED": 1}


@given(st.lists(RESULTS, max_size=30))
def test_right_ones_come_first_then_fast_ones(results):
    for rows in standings(results).values():
        ranks = [
            (not row.total, sum(row.failures.values()), -(row.speedup[0] if row.speedup else 0.0), row.solution)
            for row in rows
        ]
        assert ranks == sorted(ranks)
        for row in rows:
            mine = [each for each in results if each.solution == row.solution and each.outcome == "passed"]
            assert set(row.latencies) <= {each.latency for each in mine}
            assert row.total == row.passed + sum(row.failures.values())
            assert row.speedup is None or row.speedup[1] <= row.speedup[0] * 1.001 <= row.speedup[2] * 1.002


@given(st.lists(RESULTS, max_size=30), st.integers(1, 250))
def test_any_table_can_be_written(results, width):
    tables = standings(results)
    lines = list(table.lines(tables, width))
    assert [line for line, _ in lines if not line.startswith(" ")] == sorted(tables)
    skipped = sum(any(not row.total for row in rows) for rows in tables.values())  # all for one reason here
    assert len(lines) == sum(2 + len(rows) for rows in tables.values()) + skipped
    failed = sum(bool(row.failures) for rows in tables.values() for row in rows)
    assert [colour for _, colour in lines].count("red") == failed


def test_columns_line_up():
    results = [result(latency=1e-3, speedup=2.0), result(solution="another_one", latency=2e-3, speedup=1.0)]
    head, *rows = text(results)[1:]
    assert head.split() == ["solution", "author", "workloads", "latency", "speedup", "(min..max)"]
    assert [row.split()[0] for row in rows] == ["x", "another_one"]
    assert {row.index("me") for row in rows} == {head.index("author")}
    assert {row.index("1/1") for row in rows} == {head.index("workloads")}


def test_columns_that_say_nothing_are_left_out():
    assert "failures" not in text([result(latency=1.0)])[1]
    assert "latency" not in text([result("failed", status="TIMEOUT")])[1]


def test_a_narrow_terminal_loses_columns_one_by_one():
    results = [result(latency=1e-3, speedup=2.0, roofline=0.5, bound_share=0.1), result("failed", status="TIMEOUT")]
    heads = {text(results, width)[1]: None for width in range(200, 10, -1)}
    assert [set(wide.split()) - set(narrow.split()) for wide, narrow in zip(heads, list(heads)[1:], strict=False)] == [
        {"roofline"},
        {"author"},
        {"bound"},
    ]
    assert {"solution", "workloads", "latency", "speedup", "failures"} <= set(text(results, 10)[1].split())


@pytest.mark.parametrize("width", range(60, 120, 7))
def test_a_table_is_as_narrow_as_it_has_to_be(width):
    results = [result(latency=1e-3, speedup=2.0, roofline=0.5, bound_share=0.1), result("failed", status="TIMEOUT")]
    assert max(map(len, text(results, width))) <= max(width, *map(len, text(results, 1)))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.0, "0 ns"),
        (4.2e-10, "0.42 ns"),
        (1e-9, "1 ns"),
        (1.2345e-6, "1.23 us"),
        (99.96e-6, "100 us"),
        (999.4e-6, "999 us"),
        (999.6e-6, "1 ms"),
        (0.0123, "12.3 ms"),
        (0.99999, "1 s"),
        (61.04, "61 s"),
        (1234.5, "1230 s"),
    ],
)
def test_durations(seconds, shown):
    assert table.duration(seconds) == shown


@given(st.floats(1e-12, 1e6))
def test_a_duration_reads_back(seconds):
    number, unit = table.duration(seconds).split()
    assert "e" not in number or seconds < 1e-12
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert math.isclose(float(number) * scale, seconds, rel_tol=6e-3)


def test_records_come_from_the_properties_of_a_report():
    properties = {
        "fib_definition": "d",
        "fib_solution": "s",
        "fib_author": "a",
        "fib_check": "test_speed",
        "fib_workload": "w",
        "status": "PASSED",
        "latency_s": 1e-3,
        "speedup": 2.0,
    }
    found = Result.from_properties([list(pair) for pair in properties.items()], "passed", "")
    assert (found.definition, found.workload, found.latency, found.speedup) == ("d", "w", 1e-3, 2.0)
    assert Result.from_properties([("status", "PASSED")], "passed", "") is None


def test_a_workload_passed_if_all_its_checks_did():
    results = [result(), result("failed", status="TIMEOUT"), result(), replace(result(), workload="v")]
    results += [replace(result("failed"), workload=None)]  # test_sizes
    assert text(results)[2].split()[2] == "1/2"


def test_long_names_keep_their_ends_on_a_narrow_terminal():
    names = [f"a_kernel_with_a_rather_long_name_of_version_{number}" for number in range(2)]
    rows = text([result(solution=name, latency=1e-3) for name in names], 40)[2:]
    assert all(len(row) <= 40 for row in rows)
    assert [row.split()[0][-2:] for row in rows] == ["_0", "_1"]


def test_a_name_cannot_write_a_line_of_its_own():
    assert len(text([result(solution="x\n::error::gone")])) == 3


def test_a_standing_of_nothing():
    assert (Standing("s", "a").latency, Standing("s", "a").speedup) == (None, None)


def test_a_right_kernel_that_is_not_fast_enough_fails_by_the_name_of_the_gate():
    known = {"fib_definition": "d", "fib_solution": "x", "fib_author": "me", "fib_check": "test_speed"}
    timed = {"roofline_share": 0.5, "latency_s": 2e-6, "speedup": 0.5}
    properties = known | timed | {"status": "PASSED", "fib_gate": "SLOWER", "fib_compared": "SLOWER: 2"}
    found = Result.from_properties(properties.items(), "failed", "SLOWER: 2: measured twice")
    assert (found.status, found.compared, found.roofline) == ("SLOWER", "SLOWER: 2", 0.5)
    ((row,),) = standings([found]).values()
    assert row.failures == {"SLOWER": 1}
    assert (row.latency, row.speedup, row.passed) == (2e-6, (0.5, 0.5, 0.5), 0)  # by how much it is too slow
