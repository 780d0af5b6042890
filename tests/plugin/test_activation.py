"""Without an option or an ini key the plugin does nothing."""

import pytest


def test_json_files_are_left_alone(pytester, repository):
    pytester.makepyfile(test_own="def test_own(): pass")
    result = pytester.runpytest_inprocess("-v")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*flashinfer: *")


def test_a_named_json_file_is_left_alone(pytester, repository):
    result = pytester.runpytest_inprocess("definitions/elementwise/scale_add_h8.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.no_fnmatch_line("*test_schema*")
    result.stderr.fnmatch_lines(["ERROR: not found: *", "ERROR: pytest-flashinfer collects definitions where a *"])


def test_options_and_markers_are_known_to_strict_runs(pytester):
    pytester.makepyfile("import pytest\n@pytest.mark.definition(name='a')\ndef test_own(): pass")
    pytester.runpytest_inprocess("--strict-markers", "--strict-config").assert_outcomes(passed=1)


def test_fixtures_are_not_declared(pytester):
    pytester.makepyfile("def test_own(workload): pass")
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*fixture 'workload' not found*"])


def test_an_ini_key_wakes_it_up(pytester, repository):
    pytester.makeini("[pytest]\nfib_definitions = definitions\nfib_device = cpu")
    result = pytester.runpytest_inprocess("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*scale_add_h8.json::test_schema", "*test_reference*"])


def test_arguments_of_ones_own_stand(pytester, repository):
    """With the ini key set, `pytest tests` still runs the tests of that folder and nothing else."""
    pytester.makeini("[pytest]\nfib_solutions = solutions\nfib_device = cpu")
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass")
    pytester.runpytest_inprocess("tests").assert_outcomes(passed=1)
