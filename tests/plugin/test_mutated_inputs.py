"""A reference that writes into an input which no output names: it is run all the same, and what it does may be done."""

import json

import pytest

from .repository import Repository

STATE = {"shape": ["n", "h"], "dtype": "float32", "description": "what was there before"}
PLACE = {"shape": ["n"], "dtype": "int64", "description": "steps so far"}
BODY = "    state.mul_(0.5).add_(x * w)\n    place += 1\n"
REFERENCE = f"def run(x, w, state, place):\n{BODY}    return state * w + 1\n"
SOLUTIONS = {
    "alike": REFERENCE,
    "spares": "def run(x, w, state, place):\n    return (state * 0.5 + x * w) * w + 1\n",
    "otherwise": f"def run(x, w, state, place):\n{BODY}    y = state * w + 1\n    state.zero_()\n    return y\n",
    "elsewhere": f"def run(x, w, state, place):\n{BODY}    y = state * w + 1\n    w.zero_()\n    return y\n",
    "wrong": f"def run(x, w, state, place):\n{BODY}    return state * w + 2\n",
}
RIGHT, WRONG = ("alike", "spares", "otherwise"), ("elsewhere", "wrong")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("mutated"))
    inputs = {name: {"shape": ["n", "h"][axis:], "dtype": "float32"} for axis, name in enumerate("xw")}
    repository.define(inputs={**inputs, "state": STATE, "place": PLACE}, reference=REFERENCE)
    random = {name: {"type": "random"} for name in ("x", "w", "state", "place")}
    repository.lines(*({"uuid": f"w-{size:04d}", "axes": {"n": size}, "inputs": random} for size in (4, 16)))
    for name, source in SOLUTIONS.items():
        repository.solve(name, source)
    finished = repository.run("--benchmark-json=run.json", "--fib-scope=full")
    finished.times = json.loads((repository.root / "run.json").read_text())["benchmarks"]
    return finished


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("check", ["test_correct", "test_sizes", "test_speed"])
def test_a_solution_may_do_what_the_reference_does(done, check, name):
    found = done.of(f"{check}[{name}")
    assert found
    assert {case.outcome for case in found} == {"passed"}, found[0].text


def test_the_reference_itself_passes(done):
    assert set(done.outcomes("test_reference").values()) == {"passed"}


@pytest.mark.parametrize("check", ["test_correct", "test_sizes", "test_speed"])
def test_it_may_not_write_into_another_input(done, check):
    found = done.of(f"{check}[elsewhere")
    assert found
    for case in found:
        assert case.outcome == "failure"
        assert "input w was modified" in case.text
        assert "input state" not in case.text
        assert case.properties["status"] == "RUNTIME_ERROR"


@pytest.mark.parametrize("check", ["test_correct", "test_sizes", "test_speed"])
def test_its_outputs_have_to_be_right(done, check):
    found = done.of(f"{check}[wrong")
    assert found
    for case in found:
        assert (case.outcome, case.properties["status"]) == ("failure", "INCORRECT_NUMERICAL")


def test_there_is_one_warning(done):
    warnings = done.output.partition("warnings summary")[2].partition("short test summary")[0]
    text = "scale_add_h8: the reference writes into place, state, though no output says so"
    assert warnings.count(text) == warnings.count("though no output says so") == 1
    assert "declare it with `param` if it is a result" in warnings


def test_the_reference_is_timed_too(done):
    timed = [entry for entry in done.times if any(name in entry["name"] for name in RIGHT)]
    assert len(timed) == 2 * len(RIGHT)
    assert all(entry["extra_info"]["reference_s"] > 0 for entry in timed)


def test_a_judgement_of_ones_own_sees_the_outputs(repository):
    repository.define(reference="def run(x, w):\n    x *= w\n    return x + 1\n")
    repository.solve(source="def run(x, w):\n    x *= w\n    return x + 1\n")
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef compare():\n    def same(call, truth):\n"
        "        assert (call.outputs['y'] - truth.outputs['y'].native).abs().max() < 1e-5\n\n    return same\n",
    )
    done = repository.run("-k", "test_correct or test_sizes")
    assert set(done.outcomes().values()) == {"passed"}, done.output


def test_warnings_as_errors_end_each_item_that_meets_one_in_the_same_line(tmp_path):
    repository = Repository(tmp_path)
    repository.define(reference="def run(x, w):\n    x.add_(1)\n    return x * w\n")
    repository.sizes(4)
    repository.solve("honest", "def run(x, w):\n    return (x + 1) * w\n")
    found = repository.run(
        "-W", "error::pytest.PytestWarning", "-W", "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"
    )
    said = "-W error: scale_add_h8: the reference writes into x, though no output says so: "
    assert found["test_schema"].outcome == "passed"
    cases = [case for case in found.cases if case.name != "test_schema"]
    assert len(cases) == 4
    for case in cases:
        assert case.outcome == "failure"
        assert case.message.startswith(said)
        assert "Warning" not in case.text, "no traceback"
