"""Benchmark results from the outcomes of items."""

from dataclasses import replace

import pytest

from pytest_flashinfer.data import schema
from pytest_flashinfer.report import benchmark
from pytest_flashinfer.report.results import Result, Standing, mean


def result(outcome="passed", status=None, **facts):
    return Result("d", facts.pop("solution", "s"), "me", "test_speed", "w", outcome, status, **facts)


def only(*results):
    [document] = benchmark.documents(results, "card")
    assert list(schema.findings("result", document)) == []
    return document


def test_success():
    rows = [
        result(latency=latency, speedup=speedup, max_abs=error)
        for latency, speedup, error in ((1e-3, 2, 0.1), (4e-3, 8, 0.3))
    ]
    document = only(*rows)
    assert document.pop("time") == pytest.approx(2.0)
    assert document.pop("speedup") == pytest.approx(4.0)
    assert document == {
        "device": {"name": "card"},
        "kernel_id": "d",
        "source": "me",
        "solution": "s",
        "compiled": True,
        "time_unit": "ms",
        "max_diff": 0.3,
        "workloads": 2,
    }


def test_errors_of_drawn_values_do_not_count_unless_they_are_what_failed():
    """They may be as large as a dtype allows, and right."""
    listed = result(latency=1e-3, speedup=2, max_abs=0.1)
    sizes = replace(result(max_abs=1e9), check="test_sizes", workload=None)
    assert only(listed, sizes)["max_diff"] == 0.1
    failed = replace(sizes, outcome="failed", status="INCORRECT_NUMERICAL", max_abs=3.0)
    assert only(listed, failed)["max_diff"] == 3.0


def test_compile_failure():
    document = only(result("failed", "COMPILE_ERROR", details="COMPILE_ERROR: line 3: no\nmore", built=False), result())
    assert (document["compiled"], document["compile_error"]) == (False, "COMPILE_ERROR: line 3: no\nmore")


def test_a_compiler_that_says_much_does_not_hide_the_verdict():
    text = "COMPILE_ERROR: line 3: no\n" + "note " * 100_000 + "the end"
    said = only(result("failed", "COMPILE_ERROR", details=text, built=False))["compile_error"]
    assert said.startswith("COMPILE_ERROR: line 3: no\nnote")
    assert said.endswith("the end")
    assert len(said) < sum(benchmark.MESSAGE) + 100


@pytest.mark.parametrize("status", ["TIMEOUT", "RUNTIME_ERROR"])
def test_what_ended_while_it_was_built_is_not_compiled(status):
    text = f"{status}: no answer, while it was built or imported"
    document = only(result("failed", status, details=text, built=False))
    assert (document["compiled"], document["compile_error"]) == (False, text)
    assert document["status"] == status


def test_one_failure_is_enough_to_have_no_time():
    document = only(result(latency=1.0, speedup=2.0), result("failed", "TIMEOUT"))
    assert (document["compiled"], document["status"]) == (True, "TIMEOUT")
    assert not {"time", "speedup"} & document.keys()


def failure(check, status, text, workload="w"):
    return replace(result("failed", status, details=text), check=check, workload=workload)


def test_the_texts_of_failures_are_in_the_line():
    document = only(
        failure("test_correct", "INCORRECT_NUMERICAL", "INCORRECT_NUMERICAL: y is off\n  case: n=4", "w4"),
        failure("test_correct", "INCORRECT_NUMERICAL", "INCORRECT_NUMERICAL: y is off\n  case: n=8", "w8"),
        failure("test_correct", "TIMEOUT", "TIMEOUT: no answer", "w9"),
        failure("test_sizes", "INCORRECT_NUMERICAL", "INCORRECT_NUMERICAL: y is off\n  case: n=1", None),
    )
    assert document["status"] == "INCORRECT_NUMERICAL"
    assert [(each["check"], each["workload"], each["status"]) for each in document["failures"]] == [
        ("test_correct", "w4", "INCORRECT_NUMERICAL"),
        ("test_correct", "w9", "TIMEOUT"),
        ("test_sizes", None, "INCORRECT_NUMERICAL"),
    ]
    assert document["failures"][2]["text"] == "INCORRECT_NUMERICAL: y is off\n  case: n=1"


def test_a_line_is_no_longer_than_somebody_reads():
    text = "TIMEOUT: " + "x" * 100_000 + "\n  replay: pytest"
    document = only(*(failure(f"test_{number}", "TIMEOUT", text) for number in range(100)))
    assert len(document["failures"]) == benchmark.FAILURES
    assert max(len(each["text"]) for each in document["failures"]) <= 4000
    assert all(each["text"].endswith("\n  replay: pytest") for each in document["failures"])
    assert "failures" not in only(result(latency=1e-3, speedup=2))


def test_right_but_not_timed():
    assert only(result(max_abs=0.5))["status"] == "NOT_TIMED"


def test_a_solution_of_which_nothing_ran_says_why():
    document = only(result("skipped", message="no inputs: n > 3"), result("skipped"))
    assert (document["compiled"], document["status"], document["reason"]) == (False, "SKIPPED", "no inputs: n > 3")
    assert only(result("skipped", message="no"), result(max_abs=0.5))["status"] == "NOT_TIMED"


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "new/results.jsonl"
    benchmark.write(path, [{"a": 1}, {"b": "\udc80"}])
    assert path.read_text() == '{"a": 1}\n{"b": "?"}\n'
    benchmark.write(path, [])
    assert path.read_text() == ""
    assert [each.name for each in path.parent.iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize("latency", [-1.0, 0.0, float("inf"), float("nan")])
def test_what_is_no_time_breaks_no_report(latency):
    facts = {"fib_definition": "d", "fib_solution": "s", "fib_author": "me", "fib_check": "test_speed"}
    read = Result.from_properties([*facts.items(), ("latency_s", latency), ("speedup", latency)], "passed", "")
    assert (read.latency, read.speedup) == (None, None)
    row = Standing("s", "me")
    row.add(result(latency=latency, speedup=latency))
    assert (row.latency, row.speedup) == (None, None)
    assert mean([latency, 2.0, 8.0]) == pytest.approx(4.0)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "results").mkdir()
    with pytest.raises(OSError, match="results"):
        benchmark.write(tmp_path / "results", [])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
