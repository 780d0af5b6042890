"""--fib-shard: parts that together are the whole, each solution in one of them."""

import json

import pytest

from pytest_flashinfer.cli.main import main

from .repository import QUICK


@pytest.fixture
def many(repository):
    for name in ("best", "fast", "other", "wide"):
        repository.solve(name)
    repository.define(name="second_h8")
    repository.sizes(4, name="second_h8")
    repository.solve("lone", of="second_h8")
    return repository


def solution_of(node_id):
    inside = node_id.partition("[")[2]
    return node_id.partition("::")[0], inside.partition("-n4")[0].rstrip("]") if "test_reference" not in node_id else ""


@pytest.mark.parametrize("parts", [2, 3])
def test_the_parts_are_the_whole_and_no_solution_is_in_two(many, collected, parts):
    whole = collected()
    found = [collected(f"--fib-shard={part}/{parts}") for part in range(1, parts + 1)]
    assert sorted(item for part in found for item in part) == sorted(whole)
    solutions = [{solution_of(item) for item in part if solution_of(item)[1]} for part in found]
    assert sum(map(len, solutions)) == len(set.union(*solutions)) == 6


def test_four_solutions_of_a_definition_share_a_part_with_its_reference(many, collected):
    found = [collected(f"--fib-shard={part}/3") for part in (1, 2, 3)]
    mine = [[item for item in part if "scale_add_h8" in item] for part in found]
    sizes = sorted(len({solution_of(item) for item in part if solution_of(item)[1]}) for part in mine)
    assert sizes == [0, 1, 4]
    (first,) = (part for part in mine if any("test_schema" in item for item in part))
    assert any("test_reference" in item for item in first)
    assert len({solution_of(item) for item in first if solution_of(item)[1]}) == 4


@pytest.mark.parametrize("second", ["second_h8", "third_h8", "zeroth_h8", "a_h8"])
def test_a_few_definitions_are_spread_over_the_parts(repository, collected, second):
    for name in (second, "unsolved_h8"):
        repository.define(name=name)
        repository.sizes(4, name=name)
    repository.solve("lone", of=second)
    found = [{solution_of(item) for item in collected(f"--fib-shard={part}/2")} for part in (1, 2)]
    assert [len({each for each in part if each[1]}) for part in found] == [1, 1]


def test_a_part_does_not_depend_on_what_else_is_selected(many, collected):
    one = set(collected("--fib-shard=1/2"))
    assert set(collected("--fib-shard=1/2", "-k", "test_correct")) == {item for item in one if "test_correct" in item}


def test_more_parts_than_solutions_is_no_error(repository, pytester):
    codes = {}
    for part in range(1, 8):
        result = pytester.runpytest_inprocess(
            "--fib-solutions=solutions", *QUICK, f"--fib-shard={part}/7", "-k", "test_schema"
        )
        passed = result.parseoutcomes().get("passed", 0)
        codes[part] = (result.ret, passed)
        said = f"flashinfer: part {part} of 7 has nothing to do: the 1 item is in another"
        assert (said in result.outlines) == (not passed)
    assert {code for code, _ in codes.values()} == {0}
    assert sum(passed for _, passed in codes.values()) == 1


@pytest.mark.parametrize("more", [(), ("-n2",)], ids=["one process", "two"])
def test_a_selection_of_nothing_is_no_success_in_any_part(many, more):
    assert many.run("--fib-shard=1/2", "-k", "typo", *more).code == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_part_without_items_is_a_success_with_xdist_as_well(repository):
    runs = [repository.run(f"--fib-shard={part}/2", "-k", "test_schema", "-n1") for part in (1, 2)]
    assert [done.code for done in runs] == [0, 0]
    assert sum("has nothing to do" in done.output for done in runs) == 1


def test_the_parts_of_a_run_are_put_together(many):
    for part in (1, 2):
        folder = f"parts/{part}"
        many.write(f"{folder}/empty", "")
        done = many.run(
            *("-k", "test_speed or test_schema", f"--fib-shard={part}/2", f"--fib-traces={folder}/traces"),
            *(f"--benchmark-json={folder}/benchmark.json", f"--junitxml={folder}/kernels.xml"),
        )
        assert done.code == 0
    parts, out = [str(many.root / f"parts/{part}") for part in (1, 2)], many.root / "merged"
    assert main(["merge", *parts, "-o", str(out)]) == 0
    assert len(json.loads((out / "benchmark.json").read_text())["benchmarks"]) == 6
    assert len((out / "traces/elementwise/scale_add_h8.jsonl").read_text().splitlines()) == 5
    assert "Kernels: 6 of 6 solutions right, 2 definitions" in (out / "summary.md").read_text()


def test_the_header_says_which_part(repository, kernels):
    kernels("--collect-only", "--fib-shard=2/3").stdout.fnmatch_lines(["flashinfer: part 2 of 3"])


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_what_is_no_part_is_a_usage_error(repository, kernels, text):
    result = kernels(f"--fib-shard={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--fib-shard: '{text}'*"])
