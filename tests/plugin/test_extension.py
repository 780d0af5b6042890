"""A conftest.py beside the definitions overrides `inputs`, `tolerance` or `compare` for its folder."""

import json
from pathlib import Path

import pytest

from pytest_flashinfer.data.jsontext import parse_json
from pytest_flashinfer.data.schema import check_document

OFF = "def run(x, w):\n    return x * w + 1.001\n"


@pytest.fixture
def two(repository):
    """The same slightly wrong kernel in two folders."""
    repository.solve("good", OFF)
    repository.define(name="strict_h8", folder="strict", op_type="strict")
    repository.sizes(4, name="strict_h8", folder="strict")
    repository.solve("same", OFF, of="strict_h8")
    return repository


def test_without_it_both_fail(two, kernels):
    kernels("-k", "test_correct").assert_outcomes(failed=2, deselected=8)


def test_tolerance(two, kernels):
    two.write(
        "definitions/elementwise/conftest.py",
        "import pytest\nfrom pytest_flashinfer.judge.tolerance import Tolerance\n\n"
        "@pytest.fixture\ndef tolerance():\n    return Tolerance(atol=1e-2)\n",
    )
    result = kernels("-k", "test_correct", "-v")
    result.assert_outcomes(passed=1, failed=1, deselected=8)
    result.stdout.fnmatch_lines(["*scale_add_h8.json::test_correct*PASSED*", "*strict_h8.json::test_correct*FAILED*"])


def test_command_line_wins_over_the_fixture(two, kernels):
    two.write(
        "definitions/elementwise/conftest.py",
        "import pytest\nfrom pytest_flashinfer.judge.tolerance import Tolerance\n\n"
        "@pytest.fixture\ndef tolerance():\n    return Tolerance(atol=1e-2)\n",
    )
    kernels("-k", "test_correct", "--fib-tolerance=atol=1e-6").assert_outcomes(failed=2, deselected=8)


def test_ini_is_weaker_than_the_fixture(two, kernels, pytester):
    pytester.makeini("[pytest]\nfib_tolerance =\n    atol=1e-2\n")
    two.write(
        "definitions/strict/conftest.py",
        "import pytest\nfrom pytest_flashinfer.judge.tolerance import Tolerance\n\n"
        "@pytest.fixture\ndef tolerance():\n    return Tolerance(atol=1e-6)\n",
    )
    kernels("-k", "test_correct").assert_outcomes(passed=1, failed=1, deselected=8)


def test_tolerance_by_definition(two, kernels, pytester):
    pytester.makeini("[pytest]\nfib_tolerance =\n    strict_h8: atol=1e-2\n")
    result = kernels("-k", "test_correct", "-v")
    result.stdout.fnmatch_lines(["*scale_add_h8.json::test_correct*FAILED*", "*strict_h8.json::test_correct*PASSED*"])


def test_inputs(repository, kernels):
    """The override sees what the default makes and changes one input; every check gets the changed one."""
    repository.solve("good", "def run(x, w):\n    assert (w == 3).all()\n    return x * w + 1\n")
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef inputs(inputs):\n"
        "    def make(*arguments, **named):\n"
        "        values = inputs(*arguments, **named)\n"
        "        values['w'].fill_(3)\n"
        "        return values\n"
        "    return make\n",
    )
    kernels("-k", "test_correct or test_sizes or test_speed").assert_outcomes(passed=3, deselected=2)


@pytest.mark.parametrize("overridden", [False, True])
def test_an_override_of_compare_never_sees_what_the_host_gives_instead_of_the_card(repository, kernels, overridden):
    repository.solve("good", "def run(x, w):\n    return x * w + 1\n")
    text = (
        "import pytest\n\n@pytest.fixture\ndef inputs(inputs, reference):\n"
        "    def make(*arguments, **named):\n"
        f"        assert reference.portable is {not overridden}\n"
        "        return inputs(*arguments, **named)\n"
        "    return make\n"
    )
    if overridden:
        text += "\n@pytest.fixture\ndef compare(compare):\n    return lambda call, truth: compare(call, truth)\n"
    repository.write("definitions/elementwise/conftest.py", text)
    kernels("-k", "test_sizes").assert_outcomes(passed=1, deselected=4)


def test_compare(repository, kernels):
    """The override may judge by itself: here only signs count."""
    repository.solve("good", "def run(x, w):\n    return 5 * (x * w + 1)\n")
    kernels("-k", "test_correct").assert_outcomes(failed=1, deselected=4)
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef compare():\n"
        "    def signs(call, answer):\n"
        "        actual, expected = call.outputs['y'], answer.outputs['y'].native\n"
        "        assert ((actual > 0) == (expected > 0)).all()\n"
        "    return signs\n",
    )
    kernels("-k", "test_correct").assert_outcomes(passed=1, deselected=4)


def test_what_compare_asserts_is_reported_as_any_wrong_value(repository):
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef compare():\n"
        "    def same(call, truth):\n"
        "        assert (call.outputs['y'] == -1).all(), 'another order'\n"
        "    return same\n",
    )
    options = ("-k", "test_correct or test_sizes", "--fib-traces=traces", "--fib-results=results.jsonl")
    found = repository.run(*options, "--fib-save-failures")
    for name in ("test_correct", "test_sizes"):
        failed = found[name]
        assert failed.message == "INCORRECT_NUMERICAL: another order"
        assert failed.properties["status"] == "INCORRECT_NUMERICAL"
        assert "  at definitions/elementwise/conftest.py:6 in same: assert (call" in failed.text
        assert "  case: n=" in failed.text
        assert "  replay: pytest " in failed.text
        assert len(failed.text) < 3000
    assert "which replays it as test_correct" in found["test_sizes"].text
    assert len((repository.root / "workloads/elementwise/scale_add_h8.jsonl").read_text().splitlines()) == 2
    (trace,) = (repository.root / "traces/elementwise/scale_add_h8.jsonl").read_text().splitlines()
    assert json.loads(trace)["evaluation"]["status"] == "INCORRECT_NUMERICAL"
    (result,) = (repository.root / "results.jsonl").read_text().splitlines()
    assert json.loads(result)["status"] == "INCORRECT_NUMERICAL"


def test_a_compare_that_lets_anything_pass_is_refused(repository):
    """One returns what it finds, which decides nothing; the other looks at shapes only. Neither passes a kernel."""
    text = "import pytest\n\n@pytest.fixture\ndef compare():\n    def own(call, truth):\n        {}\n    return own\n"
    repository.solve("good", "def run(x, w):\n    return -(x * w + 1)\n")
    place = "definitions/elementwise/conftest.py:5: `compare`"
    for body, said in (
        ("return bool((call.outputs['y'] == truth.outputs['y'].native).all())", "returns bool, which decides nothing"),
        ("assert call.outputs['y'].shape == truth.outputs['y'].native.shape", "proves nothing: zeros would pass"),
    ):
        repository.write("definitions/elementwise/conftest.py", text.format(body))
        found = repository.run("--fib-results=results.jsonl")
        for name in ("test_reference", "test_correct", "test_sizes", "test_speed"):
            assert found[name].message.startswith(f"INVALID_REFERENCE: {place} {said}"), name
        (result,) = (repository.root / "results.jsonl").read_text().splitlines()
        assert json.loads(result)["status"] == "INVALID_REFERENCE"
        assert "max_diff" not in result


def test_no_error_is_told_where_an_override_of_compare_measured_none(repository):
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef compare():\n"
        "    def same(call, truth):\n"
        "        assert (call.outputs['y'] == truth.outputs['y'].native).all()\n"
        "    return same\n",
    )
    assert repository.run("-k", "test_speed", "--fib-results=results.jsonl").code == 0
    (result,) = map(json.loads, (repository.root / "results.jsonl").read_text().splitlines())
    assert result["speedup"] > 0
    assert "max_diff" not in result
    assert check_document("result", parse_json(json.dumps(result), Path("a.json"))) == ()


def test_an_error_in_inputs_is_blamed_on_nobody_else(repository):
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef inputs(inputs):\n"
        "    def make(*arguments):\n"
        "        return {'x': inputs(*arguments)['y']}\n"
        "    return make\n",
    )
    found = repository.run("-k", "not test_speed")
    said = "no inputs: definitions/elementwise/conftest.py:6: KeyError: 'y'"
    assert found["test_reference"].message == f"INVALID_REFERENCE: {said}"
    assert len(found["test_reference"].text) < 1000
    assert set(found.outcomes("good").values()) == {"skipped"}
    assert said in found["test_correct"].text


def test_a_misspelt_axis_of_an_input_is_blamed_on_no_solution(repository):
    x = {"shape": ["m", "h"], "dtype": "float32"}
    repository.define(inputs={"x": x, "w": {"shape": ["h"], "dtype": "float32"}}, axes={
        "n": {"type": "var"}, "h": {"type": "const", "value": 8}
    })  # fmt: skip
    found = repository.run("-k", "test_correct or test_sizes")
    assert set(found.outcomes().values()) == {"skipped"}
    assert "unknown axis 'm'" in found["test_sizes"].text
