"""A solution of a definition that is not there is not silently dropped."""

import pytest


def test_one_warning_with_the_nearest_name(repository, kernels):
    repository.solve("lost", of="scale_ad_h8")
    result = kernels("-k", "test_correct")
    result.assert_outcomes(passed=1, deselected=4, warnings=1)
    result.stdout.fnmatch_lines(["*lost*scale_ad_h8*scale_add_h8*"])


def test_every_solution_of_one_unknown_name_shares_the_warning(repository, kernels):
    for name in ("lost", "astray", "gone"):
        repository.solve(name, of="nothing_like_it")
    result = kernels("-k", "test_correct")
    text = result.stdout.str()
    assert text.count("nothing_like_it") >= 1
    result.assert_outcomes(passed=1, deselected=4, warnings=result.parseoutcomes()["warnings"])
    assert result.parseoutcomes()["warnings"] <= 3


def test_one_that_is_named_itself_ends_the_run(repository, pytester):
    """Who judges one attempt reads the exit code: it must not be that of a run in which all is well."""
    path = repository.solve("lost", of="scale_ad_h8")
    result = pytester.runpytest_inprocess(f"--fib-solutions={path}", "--fib-device=cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-solutions: *lost.json:*did you mean 'scale_add_h8'?"])
    module = repository.write("mine.py", '# first\n\ndefinition = "scale_ad_h8"\n\n\ndef run(x, w):\n    return x\n')
    result = pytester.runpytest_inprocess(f"--fib-solutions={module}", "--fib-device=cpu")
    result.stderr.fnmatch_lines(["ERROR: --fib-solutions: *mine.py:3: *did you mean 'scale_add_h8'?"])
    empty = repository.write("solutions/nothing.py", "def run(x, w):\n    return x\n")
    result = pytester.runpytest_inprocess(f"--fib-solutions={empty}", "--fib-device=cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*nothing.py:1: no module-level definition = *"])


def test_it_ends_a_run_of_several_processes_as_well(repository):
    path = repository.solve("lost", of="scale_ad_h8")
    done = repository.run(f"--fib-solutions={path}", "-n1", apart=True)
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert "lost.json:" in done.output
    assert "did you mean 'scale_add_h8'?" in done.output


def test_a_file_that_is_no_python_fails_the_definition_that_it_names(repository):
    """Its author asked for a verdict, and a run that is green has none."""
    repository.write("solutions/mine.py", 'definition = "scale_add_h8"\n\n\ndef run(x, w):\n    return (\n')
    done = repository.run("-k", "test_schema")
    assert done.code == 1
    assert "solutions/mine.py:5: not Python: '(' was never closed" in done["test_schema"].text
    done = repository.run("-k", "mine")
    assert done.code == 1, "its name finds the check that says why"
    assert [case.name for case in done.cases] == ["test_schema"]


def test_a_module_that_nearly_names_its_definition_fails_it(repository):
    repository.write("solutions/mine.py", 'defintion = "scale_add_h8"\n\n\ndef run(x, w):\n    return x * w\n')
    done = repository.run("-k", "test_schema")
    assert done.code == 1
    assert "solutions/mine.py:1: no module-level definition" in done["test_schema"].text
    assert "(there is 'defintion')" in done["test_schema"].text


def test_a_misspelt_key_is_a_warning_of_the_schema_check(repository, kernels):
    """What it says is lost: here the contract has no constraint."""
    repository.define(constrains=["n > 0"])
    result = kernels("-k", "test_schema")
    result.assert_outcomes(passed=1, deselected=4, warnings=1)
    said = "constrains: unknown key 'constrains'; did you mean 'constraints'?"
    result.stdout.fnmatch_lines([f"*scale_add_h8.json:*: {said}*"])
