"""A solution file that nobody can read fails, wherever it lies: a run that leaves it out must not look complete."""

import xml.etree.ElementTree as ET

import pytest


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "processes"])
def test_a_broken_file_in_a_folder_fails_by_itself(pytester, repository, options):
    repository.solve("good")
    pytester.path.joinpath("solutions/bad.json").write_text('{"name": "bad"\n "author": "me"}')
    result = pytester.runpytest_subprocess("--fib-solutions=solutions", "--junitxml=j.xml", "-k", "schema", *options)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*solutions/bad.json:1:15: not JSON: missing comma*"])
    result.stdout.fnmatch_lines(["FAILED solutions/bad.json::test_schema*"])
    result.stdout.no_fnmatch_line("*solutions that are not run*")
    assert ET.parse(pytester.path / "j.xml").getroot().find("testsuite").get("failures") == "1"


def test_it_is_chosen_by_its_name(pytester, repository):
    repository.solve("good")
    pytester.path.joinpath("solutions/bad.json").write_text("{")
    pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "good and correct").assert_outcomes(passed=1)
    pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "bad").assert_outcomes(failed=1)


def test_a_broken_file_in_the_folder_of_its_definition_fails_there(pytester, repository):
    place = pytester.path / "solutions/scale_add_h8"
    place.mkdir(parents=True)
    place.joinpath("bad.json").write_text("{")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "schema")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED definitions/*::test_schema*"])


def test_an_ini_key_leaves_other_tests_in_the_run(pytester, repository):
    pytester.makeini("[pytest]\nfib_definitions = definitions\nfib_device = cpu")
    pytester.makepyfile(test_own="def test_own(): pass")
    result = pytester.runpytest_inprocess("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*scale_add_h8.json::test_schema"])
    result.stdout.fnmatch_lines(["test_own.py::test_own"])
    assert str(result.stdout).count("::test_schema") == 1


def test_a_warning_of_the_run_points_at_what_it_is_about(pytester, repository):
    repository.solve("lost", of="nothing_like_it")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "schema")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines([f"  {pytester.path}/solutions/*.json:*: RunWarning: solutions that are not run:"])
    result.stdout.no_fnmatch_line("*pytest_flashinfer/*")


def test_warnings_as_errors_end_in_one_line(pytester, repository):
    repository.solve("lost", of="nothing_like_it")
    result = pytester.runpytest_subprocess("--fib-solutions=solutions", "--collect-only", "-W", "error")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *solutions that are not run*"])


def test_a_named_place_is_warned_of_it(pytester, repository):
    repository.solve("good")
    pytester.path.joinpath("solutions/bad.json").write_text("{")
    result = pytester.runpytest_inprocess("definitions", "--fib-solutions=solutions", "-k", "schema")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*solutions that are not run:*", "*solutions/bad.json*not JSON*"])


def test_python_that_is_no_text_fails(pytester, repository):
    repository.solve("good")
    pytester.path.joinpath("solutions/latin.py").write_bytes(b"definition = 'scale_add_h8'  # caf\xe9\n")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "schema")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED solutions/latin.py::test_schema*"])


def test_json_of_something_else_is_only_warned_of(pytester, repository):
    repository.solve("good")
    pytester.path.joinpath("solutions/package.json").write_text('{"name": "x", "version": "1"}')
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "schema")
    result.assert_outcomes(passed=1, warnings=1)


def test_json_of_no_kind_is_named(pytester, repository):
    """Neither a list nor a number is a solution; what is another record lies there for another purpose."""
    for name, text in (("list", "[]"), ("null", "null"), ("one", "1"), ("turns", '[{"type": "x"}]')):
        repository.write(f"solutions/{name}.json", text)
    repository.define(folder="../solutions", stem="problem")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only")
    assert [line.strip() for line in result.outlines if "a solution is a" in line] == [
        f"{pytester.path}/solutions/{name}.json:1: a solution is a JSON object, not {what}"
        for name, what in (("list", "a list"), ("null", "null"), ("one", "a number"))
    ]


@pytest.mark.parametrize("place", ["build", ".hidden/deep"])
def test_a_folder_of_definitions_that_pytest_does_not_enter_is_named(pytester, repository, place):
    pytester.path.joinpath(place).mkdir(parents=True)
    pytester.path.joinpath("definitions").rename(pytester.path / place / "definitions")
    pytester.makeini(f"[pytest]\nfib_definitions = {place}/definitions\nfib_device = cpu")
    pytester.makepyfile(test_own="def test_own(): pass")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*no definition in *definitions is collected: *norecursedirs*--fib-definitions=*"])
    result = pytester.runpytest_inprocess(f"--fib-definitions={place}/definitions", "-k", "schema")
    result.assert_outcomes(passed=1)


BROKEN = {
    "bad.json": '{"name": "bad", "definition": "scale_add_h8",',
    "bad.py": 'definition = "scale_add_h8"\n\ndef run(x, w:\n',
    "bad/config.toml": '[solution]\ndefinition = "scale_add_h8"\nname = \n',
    "none.json": "{",
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_choice_of_items_hides_it(pytester, repository, name):
    repository.solve("good")
    repository.write(f"solutions/{name}", BROKEN[name])
    failed = pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "scale_add_h8 and schema")
    assert failed.parseoutcomes()["failed"] == 1
    failed.stdout.no_fnmatch_line("*solutions that are not run*")
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only", "-k", "correct")
    result.stdout.fnmatch_lines(["*solutions that are not run:*", f"*solutions/{name}:*: not *"])
    two = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only", "--fib-shard=1/2")
    two.stdout.no_fnmatch_line("*solutions that are not run*")


LISTED = "workloads/elementwise/scale_add_h8.jsonl"
ONE_LINE = '{"definition": "scale_add_h8", "workload": \n'


@pytest.mark.parametrize("choice", ["-k=good and sizes", "-k=reference", "-m=solution"])
def test_lines_of_workloads_that_are_left_out_are_named_where_no_check_does(pytester, repository, choice):
    with (pytester.path / LISTED).open("a") as file:
        file.write(ONE_LINE)
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only", choice)
    result.stdout.fnmatch_lines(["*workloads that are not run:", f"*{LISTED}:2:*: not JSON: *"])


@pytest.mark.parametrize("choice", ["-k=good or schema", "--fib-shard=1/2", "--fib-shard=2/2"])
def test_they_are_not_where_one_does(pytester, repository, choice):
    (pytester.path / LISTED).write_text(ONE_LINE)
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only", choice)
    result.stdout.no_fnmatch_line("*workloads that are not run*")


def test_lines_that_are_for_nobody_are_named(pytester, repository):
    """Where a file holds the workloads of several definitions, no schema check is about such a line."""
    repository.write("all.jsonl", (pytester.path / LISTED).read_text() + ONE_LINE)
    run = ("--fib-solutions=solutions", "--collect-only", "--fib-workloads=all.jsonl")
    result = pytester.runpytest_inprocess(*run)
    result.stdout.fnmatch_lines(["*workloads that are not run:", "*all.jsonl:2:*: not JSON: *"], consecutive=True)
    assert str(result.stdout).count("not JSON") == 1


def test_a_broken_file_for_a_definition_that_is_not_there_fails_by_itself(pytester, repository):
    repository.solve("good")
    repository.write("solutions/bad.json", BROKEN["bad.json"].replace("scale_add_h8", "scale_ad_h8"))
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "-k", "schema")
    result.assert_outcomes(passed=1, failed=1, warnings=1)
    result.stdout.fnmatch_lines(["*unknown definition 'scale_ad_h8'; did you mean 'scale_add_h8'*"])
