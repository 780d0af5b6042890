"""pytest -n 2: timings end up in one place, and everything that a run writes is what one process would write."""

from __future__ import annotations

import json
import re

import pytest

from .repository import Repository

WRONG = "def run(x, w):\n    return x * w + 2\n"
FULL = ("--fib-scope=full", "-k", "test_correct or test_speed or test_schema")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("distributed"))
    made.define()
    made.sizes(4, 16)
    made.solve()
    made.solve("other")
    made.solve("wrong", WRONG)
    return made


@pytest.fixture(scope="module")
def done(made):
    outputs = ("--benchmark-json=run.json", "--fib-traces=traces", "--fib-results=results.jsonl")
    return made.run(*FULL, *outputs, "-n", "2", "-v", apart=True)


def test_outcomes(done):
    assert done.code == 1
    outcomes = done.outcomes()
    assert len(outcomes) == 13
    assert done["test_schema"].outcome == "passed"
    assert {name for name, outcome in outcomes.items() if outcome != "passed"} == set(done.outcomes("[wrong"))


def test_the_seed_of_the_header_replays_what_any_process_found(done):
    seeds = re.findall(r"--fib-seed=(\d+)", done.output)
    assert len(seeds) > 2
    assert len(set(seeds)) == 1


def test_a_solution_stays_in_one_process(done):
    ran = re.findall(r"\[(gw\d)\].*(?:PASSED|FAILED) \S+::\w+\[(\w+)-", done.output)
    assert len(ran) == 12
    assert len(set(ran)) == 3, "one process for each solution"
    assert len({process for process, _ in ran}) == 2, "and both have something to do"


def test_one_file_of_benchmarks(made, done):
    document = json.loads((made.root / "run.json").read_text())
    names = [entry["name"] for entry in document["benchmarks"]]
    assert names == [f"test_speed[{solution}-n{n}-w_00{n:02}]" for solution in ("good", "other") for n in (16, 4)]
    for entry in document["benchmarks"]:
        assert entry["fullname"] == f"definitions/elementwise/scale_add_h8.json::{entry['name']}"
        assert entry["group"] == f"scale_add_h8[w-00{entry['extra_info']['axes']['n']:02}]"
        assert entry["params"]["solution"] in entry["name"]
        assert entry["stats"]["rounds"] == len(entry["stats"]["data"]) > 1
        assert entry["stats"]["median"] == pytest.approx(entry["extra_info"]["latency_s"])
        assert entry["extra_info"]["speedup"] > 0
    assert document["machine_info"]["flashinfer"]["device"] == "cpu"


def test_tables_and_no_warning_that_nothing_is_timed(done):
    assert "benchmark 'scale_add_h8[w-0004]': 2 tests" in done.output
    assert "automatically disabled" not in done.output
    row = next(line for line in done.output.splitlines() if line.startswith("  good"))
    assert re.search(r"2/2", row)
    assert "x (" in row


def test_nothing_of_the_transport_shows(done):
    for case in done.cases:
        assert "fib_benchmark" not in case.properties
    assert float(done["test_speed[good-n4"].properties["latency_s"]) > 0


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_traces_and_results_are_those_of_one_process(made, done):
    lines = records(made.root / "traces/elementwise/scale_add_h8.jsonl")
    found = {(line["solution"], line["workload"]["uuid"]): line["evaluation"]["status"] for line in lines}
    assert len(lines) == len(found) == 6
    assert {status for (name, _), status in found.items() if name != "wrong"} == {"PASSED"}
    assert found["wrong", "w-0004"] == "INCORRECT_NUMERICAL"
    results = records(made.root / "results.jsonl")
    assert [each["solution"] for each in results] == ["good", "other", "wrong"]
    assert results[0]["workloads"] == 2


def test_a_run_that_resumes_and_only_times(made, done):
    """Once more, with what is held, by groups that xdist knows and with an item that is none of ours."""
    made.solve("new")
    made.write("test_mine.py", "def test_mine():\n    pass\n")
    options = ("--fib-scope=full", "--fib-traces=traces", "--fib-resume", "--benchmark-only")
    apart = ("-n", "2", "--dist=loadgroup", "--benchmark-json=new.json")
    again = made.run("definitions", "test_mine.py", *options, *apart, apart=True)
    assert again.code == 0, again.output
    passed = {case.name for case in again.cases if case.outcome == "passed"}
    assert passed == {"test_speed[new-n4-w_0004]", "test_speed[new-n16-w_0016]"}
    assert {case.outcome for case in again.cases if "new" not in case.name} == {"skipped"}
    document = json.loads((made.root / "new.json").read_text())
    assert {entry["fullname"].partition("::")[2] for entry in document["benchmarks"]} == passed
    row = next(line for line in again.output.splitlines() if line.startswith("  good"))
    assert "x (" in row, "what is held counts in the table"
