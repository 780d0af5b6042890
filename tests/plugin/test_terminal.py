"""The tables at the end of a run, and what pytest says besides."""

import pytest

from .repository import GOOD, WRONG


def rows(output):
    """Return the cells of each row by the solution's name."""
    table = output.partition(" kernels ==")[2].partition("\n==")[0].partition("\n--")[0]
    return {line.split()[0]: line.split() for line in table.splitlines() if line.startswith("  ")}


def test_a_call_that_passed_before_a_broken_teardown_counts_once(repository):
    repository.write(
        "definitions/elementwise/conftest.py",
        "import pytest\n\n@pytest.fixture\ndef inputs(inputs):\n    yield inputs\n    raise OSError('disk full')\n",
    )
    done = repository.run("-k", "test_correct")
    assert "1 passed" in done.output
    assert "1 error" in done.output
    assert rows(done.output)["good"] == ["good", "tests", "0/1", "1", "ERROR"]


def test_a_wrong_kernel_is_not_told_that_it_used_no_benchmark(repository):
    repository.solve("wrong", WRONG)
    done = repository.run("-k", "test_speed", "-W", "error::pytest_benchmark.logger.PytestBenchmarkWarning")
    assert done["test_speed[wrong-"].outcome == "failure"
    assert done["test_speed[good-"].outcome == "passed"
    assert "not used at all" not in done.output


def test_best_first_and_workloads_passed(repository):
    repository.sizes(4, 8)
    repository.solve("some", GOOD.replace("return", "return (x * w + 2) if len(x) > 4 else"))
    done = repository.run("-k", "test_correct", "--fib-scope=full")
    found = rows(done.output)
    assert list(found) == ["solution", "good", "some"]
    assert (found["good"][2], found["some"][2]) == ("2/2", "1/2")


def test_the_table_stands_below_those_of_pytest_benchmark(repository):
    done = repository.run("-k", "test_speed")
    assert 0 < done.output.index("Legend:") < done.output.index("= kernels =")


@pytest.mark.parametrize(("quiet", "shown"), [((), True), (("-q",), True), (("-qq",), False)])
def test_only_a_very_quiet_run_has_no_table(repository, quiet, shown):
    assert ("good      tests" in repository.run("-k", "test_correct", *quiet).output) is shown


def test_a_log_is_not_cut_to_the_width_of_a_terminal(repository, pytester, monkeypatch):
    name = "a_solution_whose_name_is_" + "very_" * 20 + "long"
    repository.solve(name)
    wide = repository.run("-k", "test_correct").output
    assert f"  {name}  tests" in wide
    monkeypatch.setenv("COLUMNS", "60")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--fib-device=cpu", "-k", "test_correct")
    table = [line for line in result.outlines if line.startswith(("  good", "  a_sol"))]
    assert max(map(len, table)) <= 60
    assert any(line.startswith("  a_sol") and "_long " in line for line in table)
