"""A folder with nothing in it that could run is named: a run of nothing must not look like one of something."""

import json
import os
import re
from pathlib import Path

import pytest

from pytest_flashinfer.run import processes
from pytest_flashinfer.worker import request

from .repository import GOOD


def test_a_folder_without_definitions(pytester, repository):
    pytester.path.joinpath("empty").mkdir()
    result = pytester.runpytest_inprocess("--fib-definitions=empty")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["*no definition in *empty: a definition is a .json file with name, axes, inputs*"])


def test_no_solution_is_blamed_for_a_folder_without_definitions(pytester, repository):
    path = repository.solve("good")
    pytester.path.joinpath("empty").mkdir()
    result = pytester.runpytest_inprocess("--fib-definitions=empty", f"--fib-solutions={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *unknown definition 'scale_add_h8': there is no definition in */empty"])


def test_a_folder_without_workloads(pytester, repository):
    repository.write("empty/scale_add_h8.json", "{}")
    result = pytester.runpytest_inprocess("--fib-workloads=empty", "-k", "schema")
    result.stdout.fnmatch_lines(["*no workloads in *empty: they are lines of .jsonl files*"])


def test_python_that_names_no_definition(pytester, repository):
    path = repository.solve("good")
    solution = json.loads(path.read_text())
    solution["sources"] += [{"path": "helper.py", "content": "", "extra": 1}]
    path.write_text(json.dumps(solution))
    path.with_name("helper.py").write_text("")
    for name in ("_own.py", "conftest.py", "test_mine.py", "mine.py", "deep/other.py"):
        repository.write(f"solutions/{name}", GOOD)
    repository.write("solutions/kit/config.toml", '[solution]\ndefinition = "scale_add_h8"\n[build]\nlanguage="python"')
    repository.write("solutions/kit/main.py", GOOD)
    result = pytester.runpytest_inprocess("--fib-solutions=solutions", "--collect-only")
    result.stdout.fnmatch_lines(
        ["*Python files that are not run*`definition = ...`:", "*solutions/mine.py", "*solutions/deep/other.py"],
        consecutive=True,
    )
    assert set(re.findall(r"solutions/([\w/.]+)", str(result.stdout))) == {"mine.py", "deep/other.py"}


def test_a_definition_in_place_of_a_solution(pytester, repository):
    result = pytester.runpytest_inprocess("--fib-solutions=definitions/elementwise/scale_add_h8.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-solutions: *scale_add_h8.json:1: this is a definition, not a solution*"])


@pytest.mark.parametrize("home", ["/proc", "a_file"])
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_no_place_for_compiled_kernels_is_nobodys_failure(repository, kernels, monkeypatch, home, options):
    monkeypatch.setenv("HOME", str(repository.write("a_file", "") if home == "a_file" else home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    result = kernels(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, result.errlines)
    assert line.startswith(f"ERROR: there is no place for compiled kernels: {os.environ['HOME']}")
    assert line.endswith(": set XDG_CACHE_HOME to a folder that this user may write to")
    assert kernels("--collect-only").ret == 0


def test_a_cache_that_others_may_write_to_only(repository, kernels, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(repository.root / "cache"))
    monkeypatch.setattr("pytest_flashinfer.worker.request.os.access", lambda *_: False)  # as root may all
    result = kernels()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *cache/pytest-flashinfer/solutions: Permission denied: set XDG_CACHE_HOME *"])


@pytest.mark.parametrize(("given", "base"), [("/c", "/c"), ("~/c", "/h/c"), ("c", None), ("./c", None), ("", None)])
def test_a_relative_place_for_compiled_kernels_is_none(monkeypatch, given, base):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert request.cache_folder() == Path(base or "/h/.cache") / "pytest-flashinfer"


def test_a_user_without_a_home(monkeypatch):
    def expand(_path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pytest_flashinfer.worker.request.Path.expanduser", expand)
    with pytest.raises(pytest.UsageError, match=r"Could not determine home directory.*XDG_CACHE_HOME"):
        processes._make_cache()
