"""What the HTML report counts: rows of runs and of trace lines, ranked as the table in the terminal is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.report.html import boards
from pytest_flashinfer.report.html.rows import Row, Rows, Told, clean, of_run, shortened
from pytest_flashinfer.report.results import Result, standings

from .pages import B200, H100, plain_report, solution

ROW = Row("d", "s", "card", "w", {"m": 2}, "PASSED", 1e-6, 2.0)
CORRECT = Result("d", "s", "me", "test_correct", "w", "passed", "PASSED", bound_share=0.5)
SPEED = Result("d", "s", "me", "test_speed", "w", "passed", "PASSED", 2e-6, 3.0, roofline=0.5)
WORKLOADS = {"d": {"w": Workload("w", {"m": 4}, {"x": InputSpec("random")})}}


def rows_of(*results):
    return of_run(results, "card", {"torch": "2"}, WORKLOADS)


def only(rows):
    [cards] = rows.boards.values()
    [solutions] = cards.values()
    [found] = solutions.values()
    [row] = found.values()
    return row


def test_the_checks_of_a_workload_are_one_row():
    for order in ((CORRECT, SPEED), (SPEED, CORRECT)):
        row = only(rows_of(*order))
        assert (row.status, row.latency, row.speedup, row.axes) == ("PASSED", 2e-6, 3.0, {"m": 4})
        assert row.roofline == 1e-6


def test_a_failure_of_one_check_is_one_of_the_row():
    wrong = replace(CORRECT, outcome="failed", status="TIMEOUT", details="TIMEOUT: no answer")
    for order in ((wrong, SPEED), (SPEED, wrong)):
        row = only(rows_of(*order))
        assert (row.status, row.latency, row.log) == ("TIMEOUT", None, "TIMEOUT: no answer")


def test_who_is_right_but_not_fast_enough_has_a_time():
    row = only(rows_of(CORRECT, replace(SPEED, outcome="failed", status="LOW_SPEEDUP", gated=True)))
    assert (row.status, row.latency, row.speedup) == ("LOW_SPEEDUP", 2e-6, 3.0)
    ((standing,),) = standings([row.result("me")]).values()
    assert (standing.latency, standing.failures) == (2e-6, {"LOW_SPEEDUP": 1})


def test_skipped_items_are_no_rows():
    assert rows_of(replace(CORRECT, outcome="skipped")).boards == {}


def test_the_sizes_of_a_drawn_failure_come_from_its_workload_line():
    line = json.dumps({"definition": "d", "solution": None, "workload": {"uuid": "u", "axes": {"m": 3}}})
    drawn = Result("d", "s", "me", "test_sizes", None, "failed", "TIMEOUT", details=f"E  wrong\nE  {line}\n")
    row = only(rows_of(drawn))
    assert (row.workload, row.axes) == (None, {"m": 3})
    assert only(rows_of(replace(drawn, details='E  {"definition": broken'))).axes == {}


def test_the_latest_row_counts():
    for first, second, speed in (("1", "2", 5.0), ("2", "1", 2.0), ("", "", 5.0)):
        rows = Rows()
        rows.add(replace(ROW, timestamp=first))
        rows.add(replace(ROW, timestamp=second, speedup=5.0))
        assert only(rows).speedup == speed
        assert rows.replaced == 1
        assert "made again" in boards.make(rows, Told(), "t").notes[0]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2026-01-01T10:00:00+02:00", "2026-01-01T09:00:00+00:00"),
        ("2026-01-01T09:30:00.500000+00:00", "2026-01-01T10:00:00Z"),
        ("2026-01-01T23:00:00", "2026-01-01T20:00:00-05:00"),
        ("2026-01-01", "2026-01-01T00:00:01Z"),
        ("once", "twice"),
        ("2026-01-01", "once"),
    ],
)
def test_timestamps_compare_by_the_clock(earlier, later):
    for first, second in ((earlier, later), (later, earlier)):
        rows = Rows()
        rows.add(replace(ROW, timestamp=first))
        rows.add(replace(ROW, timestamp=second))
        assert only(rows).timestamp == later


def test_versions_are_those_of_the_evaluations_that_count():
    rows = Rows()
    for timestamp, libs in (("1", "2.9"), ("3", "2.11"), ("2", "2.10")):
        rows.add(replace(ROW, timestamp=timestamp), {"torch": libs})
    rows.add(replace(ROW, workload="v"), {"torch": "2.9"})
    found = boards.make(rows, Told(), "t").environments
    assert found == [("card", (("torch", "2.11"),), 1), ("card", (("torch", "2.9"),), 1)]
    only_one = Rows()
    for timestamp, libs in (("1", "2.9"), ("2", "2.10")):
        only_one.add(replace(ROW, timestamp=timestamp), {"torch": libs})
    assert boards.make(only_one, Told(), "t").environments == [("card", (("torch", "2.10"),), 1)]


STATUSES = st.sampled_from(["PASSED", "TIMEOUT"])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("uvw"), STATUSES, st.floats(0.1, 9))))
def test_ranked_as_in_the_terminal(drawn):
    rows = Rows()
    for name, workload, status, speedup in drawn:
        times = (1e-6, speedup) if status == "PASSED" else (None, None)
        rows.add(Row("d", name, "card", workload, {}, status, *times))
    for chapter in boards.make(rows, Told(), "t").chapters:
        [board] = chapter.boards
        results = [row.result("") for group in board.rows.values() for row in group.values()]
        assert board.standings == standings(results)["d"]


def test_of_each_failure_the_smallest_case_is_told():
    report = plain_report()
    [failing] = report.chapters[1].boards[0].failures
    assert (failing.solution, failing.count, failing.smallest.axes) == ("broken", 2, {"m": 64, "pages": 2})
    assert not failing.drawn


def test_sizes_that_were_drawn_are_no_workload():
    wrong = replace(CORRECT, outcome="failed", status="TIMEOUT")
    drawn = replace(wrong, check="test_sizes", workload=None)
    for results, told in (([wrong, drawn], (1, True)), ([drawn], (0, True)), ([wrong], (1, False))):
        [board] = boards.make(rows_of(*results), Told(), "t").chapters[0].boards
        [failing] = board.failures
        assert (failing.count, failing.drawn) == told


def test_chapters_boards_and_what_the_header_says():
    report = plain_report()
    assert [chapter.name for chapter in report.chapters] == ["gemm_n128", "gemm_n1024", "rmsnorm_h128"]
    assert [board.card for board in report.chapters[0].boards] == [B200, H100]
    assert report.cards == [B200, H100]
    assert report.authors == ["ann", "bo", "cy", "dee"]
    assert (report.count(), report.count("PASSED")) == (4 * 4 * 7 + 1, 4 * 4 * 7 + 1 - 8)


def test_a_best_solution_is_right_and_timed():
    rows = Rows()
    rows.add(replace(ROW, latency=None, speedup=None))
    assert boards.make(rows, Told(), "t").chapters[0].boards[0].best is None
    rows.add(replace(ROW, workload="other"))
    assert boards.make(rows, Told(), "t").chapters[0].boards[0].best.speedup[0] == 2.0


def test_long_boards_keep_the_best(monkeypatch):
    monkeypatch.setattr(boards, "MAX_STANDINGS", 2)
    rows = Rows()
    for number in range(5):
        rows.add(replace(ROW, solution=f"s{number}", speedup=1.0 + number))
    report = boards.make(rows, Told(), "t")
    assert [each.solution for each in report.chapters[0].boards[0].standings] == ["s4", "s3"]
    assert report.notes == ["d on card: 3 solutions left out, the last"]


def test_what_is_not_told_is_left_open():
    report = boards.make(only_rows(), Told(), "t")
    assert (report.chapters[0].op_type, report.authors) == ("unknown", [""])
    told = Told(solutions={("d", "s"): solution("s", "d", "ann")})
    assert boards.make(only_rows(), told, "t").authors == ["ann"]


def only_rows():
    rows = Rows()
    rows.add(ROW)
    return rows


@given(st.text())
def test_clean_names_can_be_written(name):
    assert "\0" not in clean(name)
    clean(name).encode()
    assert clean(clean(name)) == clean(name)


def test_long_logs_keep_their_ends():
    log = "first line\n" + "x" * 10_000 + "\nlast line"
    short = shortened(log)
    assert len(short) < 4_100
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "characters left out" in short
    assert shortened("short") == "short"
