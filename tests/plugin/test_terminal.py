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


def test_a_fault_that_every_item_ends_with_is_told_once(repository):
    """In full at the first item; the others are listed, and junit has all of each."""
    text = "import pytest\n\n@pytest.fixture\ndef tolerance():\n    raise KeyError('typo')\n"
    repository.write("definitions/elementwise/conftest.py", text)
    repository.sizes(4, 9, 16)
    done = repository.run("-k", "test_correct or test_sizes", "--fib-scope=full")
    assert set(done.outcomes().values()) == {"error"}
    said = "conftest.py:5: fixture tolerance: KeyError: 'typo'"
    blocks = done.output.partition("= ERRORS =")[2].partition("= kernels =")[0].split("ERROR at setup of ")[1:]
    assert len(blocks) == 4
    assert all(said in block for block in blocks)
    assert ["as above" in block for block in blocks] == [False, True, True, True]
    assert all(said in case.text and "as above" not in case.text for case in done.cases)
    assert "as above" not in repository.run("-k", "test_correct or test_sizes", "-v").output


def test_a_build_that_fails_is_told_once_for_each_solution(repository):
    for name in ("one", "two"):
        repository.solve(name, "import nothing_of_the_kind\n")
    repository.sizes(4, 9)
    done = repository.run("-k", "test_correct and (one or two)", "--fib-scope=full")
    blocks = done.output.partition("= FAILURES =")[2].partition("= kernels =")[0].split("test_correct[")
    blocks = [block for block in blocks if block.startswith(("one-n", "two-n")) and "COMPILE_ERROR" in block]
    assert ["as above" in block for block in blocks] == [False, True, False, True]
