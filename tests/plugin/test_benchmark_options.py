"""Timing goes through pytest-benchmark, and its options mean what they say."""

import json

import pytest

from .repository import WRONG

SPEED = ("-k", "test_speed")


def test_json(repository):
    done = repository.run(*SPEED, "--benchmark-json=run.json")
    assert done["test_speed"].outcome == "passed"
    document = json.loads((repository.root / "run.json").read_text())
    (entry,) = document["benchmarks"]
    assert entry["name"] == "test_speed[good-n4-w_0004]"
    assert entry["stats"]["rounds"] > 1
    assert 0 < entry["stats"]["median"] < 1
    assert entry["extra_info"]["speedup"] > 0
    assert "cpu" in json.dumps(entry["extra_info"]).lower() or "wall" in json.dumps(entry["extra_info"]).lower()


@pytest.mark.parametrize("file", ["solutions/kit/k.cu", "definitions/elementwise/scale_add_h8.json"])
def test_json_is_not_written_over_a_file_that_the_run_is_given(repository, file):
    path = repository.root / file
    if not path.exists():
        repository.write(file, "definition = 'scale_add_h8'\n")
    before = path.read_text()
    done = repository.run(*SPEED, f"--benchmark-json={file}")
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert f"--benchmark-json: {file} is there and is no JSON of pytest-benchmark: name another file" in done.output
    assert path.read_text() == before


def test_json_is_written_over_what_pytest_benchmark_wrote_and_over_any_other_file(repository):
    repository.write("solutions/run.json", json.dumps({"machine_info": {}, "benchmarks": []}))
    repository.write("notes.txt", "mine")
    for file in ("solutions/run.json", "notes.txt"):
        assert repository.run("-k", "test_schema", f"--benchmark-json={file}").code == 0


def test_where_nothing_was_timed_all_else_is_written(repository):
    """Also where warnings are errors: pytest-benchmark's own would end the run before anything is shown or written."""
    repository.solve("good", WRONG)
    done = repository.run("-Werror", "-k", "test_correct", "--benchmark-json=run.json", "--fib-results=results.jsonl")
    assert done.code == 1
    assert done["test_correct"].outcome == "failure"
    assert "INCORRECT_NUMERICAL" in done.output
    assert "--benchmark-json: nothing was timed, and nothing is saved" in done.output
    assert (repository.root / "results.jsonl").stat().st_size
    assert not (repository.root / "run.json").exists()


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "distributed"])
def test_what_another_check_finds_wrong_has_no_time_anywhere(repository, processes):
    """The second call of the process alone is wrong here; what is timed comes later."""
    late = "calls = []\n\ndef run(x, w):\n    calls.append(1)\n    return x * w + (2 if len(calls) == 2 else 1)\n"
    repository.solve("late", late)
    options = ("-k", "correct or speed", "--benchmark-json=out.json", "--fib-results=results.jsonl", *processes)
    done = repository.run(*options)
    outcomes = {case.name.partition("-")[0]: case.outcome for case in done.of("late")}
    assert outcomes == {"test_correct[late": "failure", "test_speed[late": "passed"}, done.output
    names = [each["name"] for each in json.loads((repository.root / "out.json").read_text())["benchmarks"]]
    assert [name.partition("-")[0] for name in names] == ["test_speed[good"]
    [row] = [line.split() for line in done.output.splitlines() if line.startswith("  late ")]
    assert row[2:5] == ["0/1", "-", "-"]


def test_a_part_without_items_has_no_times_either(kernels):
    result = kernels("-Werror", "-k", "test_schema", "--fib-shard=1/2", "--benchmark-autosave")
    other = kernels("-Werror", "-k", "test_schema", "--fib-shard=2/2", "--benchmark-autosave")
    assert [result.ret, other.ret] == [0, 0]


def test_skip_leaves_correctness(kernels):
    result = kernels("--benchmark-skip")
    result.assert_outcomes(passed=4, skipped=1)


def test_switched_off_it_leaves_correctness(kernels):
    result = kernels("-p", "no:benchmark", "--strict-markers", "-W", "error", "-rs", "-k", "not test_sizes")
    result.assert_outcomes(passed=3, skipped=1, deselected=1)
    result.stdout.fnmatch_lines(["SKIPPED*pytest-benchmark, which keeps times, is switched off (-p no:benchmark)"])


def test_only_leaves_timing(kernels):
    result = kernels("--benchmark-only")
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 1
    result.stdout.fnmatch_lines(["*test_speed[[]good-n4-w_0004]*"])


def test_disabled_still_judges_the_call(repository, kernels):
    repository.solve("good", "def run(x, w):\n    return x * w + 2\n")
    kernels(*SPEED, "--benchmark-disable").assert_outcomes(failed=1, deselected=4)


def test_timed_calls_are_judged(repository, kernels):
    """A kernel that is right at first and then cheap is not timed as if it were right."""
    source = "calls = 0\n\ndef run(x, w):\n    global calls\n    calls += 1\n    return x * w + 1 if calls < 4 else x\n"
    repository.solve("good", source)
    result = kernels(*SPEED)
    result.assert_outcomes(failed=1, deselected=4)


def test_saved_runs_compare(repository, kernels):
    kernels(*SPEED, "--benchmark-autosave").assert_outcomes(passed=1, deselected=4)
    assert list(repository.root.glob(".benchmarks/*/0001_*.json"))
    result = kernels(*SPEED, "--benchmark-compare")
    result.assert_outcomes(passed=1, deselected=4)
    result.stdout.fnmatch_lines(["*test_speed[[]good-n4-w_0004] (NOW)*"])


def test_a_group_is_a_workload(repository, kernels):
    repository.solve("other")
    repository.sizes(4, 16)
    result = kernels(*SPEED, "--fib-scope=full")
    groups = [line for line in result.outlines if line.startswith("---") and "benchmark" in line]
    assert len(groups) == 2, "\n".join(groups)
    assert all("2 tests" in line for line in groups)


def test_group_by_solution(repository, kernels):
    repository.solve("other")
    result = kernels(*SPEED, "--benchmark-group-by=param:solution")
    groups = [line for line in result.outlines if line.startswith("---") and "benchmark" in line]
    assert len(groups) == 2
    assert any("other" in line for line in groups)


@pytest.mark.parametrize("check", ["test_correct", "test_speed"])
def test_junit_carries_the_numbers(repository, check):
    done = repository.run("-k", check)
    properties = done[check].properties
    assert properties["fib_definition"] == "scale_add_h8"
    assert properties["fib_solution"] == "good"
    assert properties["status"] == "PASSED"
    if check == "test_speed":
        assert float(properties["latency_s"]) > 0
        assert float(properties["speedup"]) > 0


def test_table_at_the_end(repository, kernels, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    repository.solve("wrong", "def run(x, w):\n    return x * w + 2\n")
    result = kernels()
    result.stdout.fnmatch_lines(
        ["scale_add_h8*", "*solution*author*", "*good*tests*", "*wrong*tests*INCORRECT_NUMERICAL*"]
    )
