"""Trace lines of a run: one for each solution and workload, as soon as its outcome is known."""

import pytest

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.traces import load_traces

from .repository import GOOD, WRONG, Repository

SOLUTIONS = {
    "good": (GOOD, "PASSED"),
    "wrong": (WRONG, "INCORRECT_NUMERICAL"),
    "narrow": ("def run(x, w):\n    return (x * w + 1)[1:]\n", "INCORRECT_SHAPE"),
    "double": ("def run(x, w):\n    return (x * w + 1).double()\n", "INCORRECT_DTYPE"),
    "raises": ("def run(x, w):\n    raise ValueError('no such tile')\n", "RUNTIME_ERROR"),
    "dies": ("import os\ndef run(x, w):\n    os._exit(3)\n", "RUNTIME_ERROR"),
    "loud": ("def run(x, w):\n    print('noise ' * 9000)\n    return x * w + 2\n", "INCORRECT_NUMERICAL"),
    "broken": ("def run(x, w)\n    return x\n", "COMPILE_ERROR"),
    "late": (
        "n = 0\ndef run(x, w):\n    global n\n    n += 1\n    return x * w + 1 + (n > 4)\n",
        "INCORRECT_NUMERICAL",
    ),
}
TRACES = ("--fib-traces=traces", "-k", "test_correct or test_speed")


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Return the traces of a run by solution; there is one workload."""
    repository = Repository(tmp_path_factory.mktemp("traced"))
    repository.define()
    repository.sizes(4)
    for name, (source, _) in SOLUTIONS.items():
        repository.solve(name, source)
    repository.solve("absent", GOOD, dependencies=["no-such-distribution-at-all"])
    done = repository.run(*TRACES)
    loaded = load_traces(repository.root / "traces/elementwise/scale_add_h8.jsonl")
    return done, loaded


def test_every_line_is_valid(traced):
    _, loaded = traced
    for line in loaded:
        assert line.faults == ()
        assert schema.check("trace", line) == ()


def test_one_line_for_each_solution_that_ran(traced):
    """Those that fail test_correct fail test_speed as well, which adds nothing."""
    _, loaded = traced
    assert sorted(line.value.solution for line in loaded) == sorted(SOLUTIONS)
    assert {line.value.workload.uuid for line in loaded} == {"w-0004"}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_what_a_line_says(traced, name):
    _, loaded = traced
    [trace] = [line.value for line in loaded if line.value.solution == name]
    evaluation, status = trace.evaluation, SOLUTIONS[name][1]
    assert evaluation.status == status
    assert (evaluation.performance is not None) == (status == "PASSED")
    assert (evaluation.correctness is not None) == (status in ("PASSED", "INCORRECT_NUMERICAL"))
    assert evaluation.environment.libs.keys() >= {"torch", "triton", "pytest-flashinfer"}
    if status == "PASSED":
        assert evaluation.performance.latency_ms > 0
        assert evaluation.performance.speedup_factor > 0
    else:
        assert status in evaluation.log


def test_the_log_says_how_it_ended(traced):
    _, loaded = traced
    logs = {line.value.solution: line.value.evaluation.log for line in loaded}
    assert "no such tile" in logs["raises"]
    assert "exit status 3" in logs["dies"]
    assert "SyntaxError" in logs["broken"]


def test_what_is_printed_is_cut_where_it_is_shown_and_in_the_lines(traced):
    done, loaded = traced
    [log] = [line.value.evaluation.log for line in loaded if line.value.solution == "loud"]
    assert log.startswith("INCORRECT_NUMERICAL: ")
    assert " characters left out ...]\n" in log
    assert " characters left out ...]\n" in done.output
    assert len(done["test_correct[loud"].text) < 15_000


def test_lines_and_report_agree(traced):
    done, loaded = traced
    failed = {case.properties["fib_solution"] for case in done.of("test_speed") if case.outcome == "failure"}
    assert failed == {line.value.solution for line in loaded if line.value.evaluation.status != "PASSED"}


def test_right_but_not_timed_leaves_no_line(repository):
    repository.solve("wrong", WRONG)
    done = repository.run("--fib-traces=traces", "-k", "test_correct")
    assert done["test_correct[good"].outcome == "passed"
    [line] = load_traces(repository.root / "traces/elementwise/scale_add_h8.jsonl")
    assert line.value.solution == "wrong"


def test_nothing_is_written_unasked(repository):
    repository.run("-k", "test_speed")
    assert not list(repository.root.glob("**/*.jsonl.*"))
    assert [path.parts[-3] for path in repository.root.glob("**/scale_add_h8.jsonl")] == ["workloads"]


def test_a_place_that_cannot_be_written_is_said_before_anything_runs(repository):
    repository.write("taken", "a file")
    done = repository.run("--fib-traces=taken", "-k", "test_speed")
    assert done.code == 4
    assert f"--fib-traces: {repository.root}/taken is a file: name a folder" in done.output


def test_a_line_that_cannot_be_written_costs_no_result(repository):
    (repository.root / "traces/elementwise/scale_add_h8.jsonl").mkdir(parents=True)
    done = repository.run("--fib-traces=traces", "-k", "test_speed")
    assert done["test_speed[good"].outcome == "passed"
    assert done.code == 1
    assert "scale_add_h8.jsonl cannot be written: Is a directory" in done.output
