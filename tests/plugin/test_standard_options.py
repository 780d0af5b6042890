"""pytest's own options keep their meaning."""

import xml.etree.ElementTree as ET

import pytest

from .repository import WRONG

CORRECT = ("-k", "test_correct")


@pytest.fixture
def mixed(repository):
    """Two right solutions with a wrong one between them, by name."""
    repository.solve("a_right")
    repository.solve("b_wrong", WRONG)
    repository.solve("c_right")
    (repository.root / "solutions/tests/scale_add_h8/good.json").unlink()
    return repository


def ran(result):
    """Names of executed tests, in order, from a verbose run."""
    words = ("PASSED", "FAILED", "SKIPPED", "ERROR")
    return [
        line.partition("::")[2].split()[0]
        for line in result.outlines
        if "::" in line and any(w in line for w in words) and "[" in line and "%]" in line
    ]


def test_last_failed_and_failed_first(mixed, kernels):
    kernels(*CORRECT).assert_outcomes(passed=2, failed=1)
    again = kernels(*CORRECT, "--lf", "-v")
    again.assert_outcomes(failed=1)
    assert ran(again) == ["test_correct[b_wrong-n4-w_0004]"]
    first = kernels(*CORRECT, "--ff", "-v")
    first.assert_outcomes(passed=2, failed=1)
    assert ran(first)[0] == "test_correct[b_wrong-n4-w_0004]"


def test_last_failed_follows_the_mended_kernel(mixed, kernels):
    kernels(*CORRECT)
    mixed.solve("b_wrong")
    kernels(*CORRECT, "--lf").assert_outcomes(passed=1)
    kernels(*CORRECT, "--lf").assert_outcomes(passed=3)


def test_stepwise(mixed, kernels):
    kernels(*CORRECT, "--sw").assert_outcomes(passed=1, failed=1)
    mixed.solve("b_wrong")
    second = kernels(*CORRECT, "--sw", "-v")
    second.assert_outcomes(passed=2)
    assert ran(second) == ["test_correct[b_wrong-n4-w_0004]", "test_correct[c_right-n4-w_0004]"]


def test_exit_first(mixed, kernels):
    result = kernels(*CORRECT, "-x")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


def test_collect_only_runs_nothing(mixed, kernels):
    result = kernels("--collect-only")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*<DefinitionFile scale_add_h8.json>*", "*<KernelItem test_correct[[]a_right-n4-w_0004]>*"]
    )


def test_what_only_sets_up_says_nothing_of_timings_that_were_not_made(mixed, kernels):
    result = kernels("-k", "test_speed", "--setup-only", "-W", "error")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*Warning*")


def test_setup_plan_runs_nothing(mixed, kernels):
    result = kernels(*CORRECT, "--setup-plan")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*SETUP * M solution*", "*test_correct[[]a_right-n4-w_0004] (fixtures used: *"])


def test_junit(mixed):
    done = mixed.run(*CORRECT)
    assert done.outcomes() == {
        "test_correct[a_right-n4-w_0004]": "passed",
        "test_correct[b_wrong-n4-w_0004]": "failure",
        "test_correct[c_right-n4-w_0004]": "passed",
    }
    suite = ET.parse(mixed.root / "junit.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert done["test_correct[b_wrong"].properties["fib_solution"] == "b_wrong"


def test_quiet_run_has_no_header(mixed, kernels):
    result = kernels(*CORRECT, "-qq")
    result.stdout.no_fnmatch_line("flashinfer: *")


def test_without_the_cache(mixed, kernels):
    kernels(*CORRECT, "-p", "no:cacheprovider").assert_outcomes(passed=2, failed=1)
