"""The scripts inside the workflows and the action, run as a runner would run them."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # what `shell: bash` is
KEPT = "rmsnorm_h128"


GPU = ".github/workflows/gpu.yml"


def steps(path):
    document = yaml.safe_load((ROOT / path).read_text())
    jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
    return [step for job in jobs for step in job["steps"]]


def script(path, name):
    [step] = [step for step in steps(path) if step.get("name") == name]
    return step["run"]


def run(text, cwd, **variables):
    environment = os.environ | {
        "PATH": f"{cwd / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **{key: str(value) for key, value in variables.items()},
    }
    return subprocess.run(
        [*SHELL, text], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def program(folder, name, text):
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


ALL = [
    pytest.param(step["run"], id=f"{Path(path).stem}-{number}")
    for path in ("action.yml", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob(".github/workflows/*.yml")))
    for number, step in enumerate(steps(path))
    if "run" in step
]


@pytest.mark.parametrize("text", ALL)
def test_no_script_holds_what_strangers_write(text):
    """An expression inside of a script is pasted into it; texts come in by the environment."""
    assert "${{" not in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False, timeout=10).returncode == 0
    if shutil.which("shellcheck"):
        given = ["shellcheck", "--shell=bash", "-"]
        done = subprocess.run(given, input=text, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout


GIVEN = {
    "FIB_SOLUTIONS": "my solutions",
    "FIB_DEFINITIONS": "",
    "FIB_WORKLOADS": "w",
    "FIB_ARGUMENTS": "-k\ngemm and not slow\n--fib-scope=full\n",
    "FIB_SHARD": "2/3",
    "FIB_REQUIRE_GPU": "true",
    "FIB_VALIDATE_ONLY": "false",
    "FIB_RESULTS": "out",
}


def test_the_action_says_to_pytest_what_it_was_told(tmp_path):
    told = program(tmp_path, "told", '#!/bin/sh\nfor word; do echo "$word"; done\n')
    done = run(script("action.yml", "Check"), tmp_path, **GIVEN, FIB_PYTHON=told)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *("-m", "pytest", "--fib-solutions=my solutions", "--fib-shard=2/3", "--fib-workloads=w", "--fib-require-gpu"),
        *("-k", "gemm and not slow", "--fib-scope=full"),
        *("--junitxml=out/kernels.xml", "--benchmark-json=out/benchmark.json", "--fib-traces=out/traces"),
    ]
    assert (tmp_path / "out").is_dir()


@pytest.fixture
def data(tmp_path):
    for name in (f"definitions/rmsnorm/{KEPT}.json", f"workloads/rmsnorm/{KEPT}.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / f"solutions/torch/rmsnorm/{KEPT}", tmp_path / f"solutions/torch/rmsnorm/{KEPT}")
    return tmp_path


TRAP = "import pathlib\npathlib.Path(__file__).with_name('trapped').write_text('')\nraise SystemExit(0)\n"


def test_the_action_validates_without_running_what_lies_there(data):
    given = {**GIVEN, "FIB_PYTHON": sys.executable, "FIB_SOLUTIONS": "solutions/", "FIB_WORKLOADS": ""}
    given["FIB_VALIDATE_ONLY"] = "true"
    for name in ("json.py", "jsonschema.py", "conftest.py", "sitecustomize.py"):
        (data / name).write_text(TRAP)
    check = script("action.yml", "Check")
    for path, code in ((None, 0), (data / f"definitions/rmsnorm/{KEPT}.json", 1)):
        if path is not None:
            path.write_text(path.read_text().replace('"axes"', '"axis"', 1))
        text = check.replace(" -I -m pytest_flashinfer", f" -I -c '{PACKAGE}'")
        done = run(text, data, **given)
        assert done.returncode == code, done.stdout + done.stderr
    assert not (data / "trapped").exists()
    assert " -I -m pytest_flashinfer validate" in check


@pytest.mark.parametrize(
    ("named", "places", "words"),
    [
        ({}, (), []),
        ({}, ("definitions",), ["definitions"]),
        ({"FIB_DEFINITIONS": "mine"}, ("mine",), ["mine"]),
        ({"FIB_DEFINITIONS": "mine"}, ("mine", "workloads"), ["mine", "workloads"]),
        ({"FIB_WORKLOADS": "w"}, (), ["w"]),
    ],
)
def test_of_the_folders_to_validate_those_that_nobody_names_may_be_missing(tmp_path, named, places, words):
    for place in places:
        (tmp_path / place).mkdir()
    told = program(tmp_path, "told", '#!/bin/sh\nfor word; do echo "$word"; done\n')
    given = {**GIVEN, "FIB_VALIDATE_ONLY": "true", "FIB_WORKLOADS": "", **named}
    done = run(script("action.yml", "Check"), tmp_path, **given, FIB_PYTHON=told)
    assert done.stdout.splitlines() == ["-I", "-m", "pytest_flashinfer", "validate", "my solutions", *words]


PACKAGE = f'import sys; sys.path.insert(0, "{ROOT}"); from pytest_flashinfer.cli.main import main; sys.exit(main())'


def test_the_action_runs_pytest(data):
    given = {**GIVEN, "FIB_PYTHON": sys.executable, "FIB_SOLUTIONS": "solutions/", "FIB_WORKLOADS": ""}
    given |= {"FIB_SHARD": "1/1", "FIB_REQUIRE_GPU": "false", "FIB_ARGUMENTS": "-k\ntest_schema"}
    summary = data / "summary.md"
    done = run(
        script("action.yml", "Check"),
        data,
        **{**given, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": summary, "GITHUB_WORKSPACE": data},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (data / "out/kernels.xml").is_file()


def test_proposed_files_are_validated(data):
    (data / "proposed").mkdir()
    for name in ("definitions", "workloads", "solutions"):
        (data / name).rename(data / "proposed" / name)
    text = script(".github/workflows/ci.yml", "Validate the proposed files without running any of them")
    assert text == "python -I -m pytest_flashinfer validate proposed/"
    done = run(text.replace(" -I -m pytest_flashinfer", f" -I -c '{PACKAGE}'"), data)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 files: 0 faults" in done.stderr


def test_parts_are_merged_into_a_summary(tmp_path):
    from tests.cli.test_merge import part

    part(tmp_path / "parts/kernels-1", "good")
    part(tmp_path / "parts/kernels-2", "fine")
    text = script(GPU, "Merge and compare")
    for answer in ("warning: no baseline", ""):
        done = run(text, tmp_path, GITHUB_STEP_SUMMARY=tmp_path / "step.md")
        assert (done.returncode, answer in done.stderr) == (0, True), done.stderr
    assert (tmp_path / "step.md").read_text().count("2 of 2 solutions right") == 2
    assert "Against the baseline" in (tmp_path / "step.md").read_text()
    assert len(json.loads((tmp_path / "baseline/benchmark.json").read_text())["benchmarks"]) == 2


def test_the_only_part_is_merged_as_well(tmp_path):
    from tests.cli.test_merge import part

    part(tmp_path / "parts", "good")
    done = run(script(GPU, "Merge and compare"), tmp_path, GITHUB_STEP_SUMMARY=tmp_path / "step.md")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 solution right" in (tmp_path / "step.md").read_text()


def test_parts_in_which_nothing_was_timed_are_told_of_and_leave_the_baseline(tmp_path):
    from tests.cli.test_merge import FAILURE, part

    earlier = part(tmp_path / "earlier", "bad") / "benchmark.json"
    for number in "12":
        (part(tmp_path / f"parts/kernels-{number}", f"bad{number}", "TIMEOUT", FAILURE) / "benchmark.json").unlink()
    text = script(GPU, "Merge and compare")
    for kept in (False, True):
        if kept:
            (tmp_path / "baseline").mkdir()
            shutil.copy(earlier, tmp_path / "baseline")
        done = run(text, tmp_path, GITHUB_STEP_SUMMARY=tmp_path / "step.md")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "baseline/benchmark.json").exists() == kept
    assert (tmp_path / "step.md").read_text().count("0 of 2 solutions right") == 2
    assert (tmp_path / "merged/summary.md").is_file()


def test_a_pull_request_that_makes_a_kernel_slower_fails(data):
    """What the merge leaves is what the shards are given: another run of the same kernels is held against it."""
    [gate] = [step["with"]["arguments"] for step in steps(GPU) if step.get("uses") == "./"]
    [option] = re.findall(r"'(--fib-baseline=\S+)'", gate)
    [event, file] = re.findall(r"(?:event_name == |hashFiles\()'([^']+)'", gate)
    assert (event, f"--fib-baseline={file}") == ("pull_request", option)
    given = {**GIVEN, "FIB_PYTHON": sys.executable, "FIB_SOLUTIONS": "solutions/", "FIB_WORKLOADS": ""}
    given |= {"FIB_SHARD": "1/1", "FIB_REQUIRE_GPU": "false", "FIB_RESULTS": "parts/kernels-1"}
    check, merge = script("action.yml", "Check"), script(GPU, "Merge and compare")
    only = ["-k", "test_speed"]
    assert run(check, data, **given | {"FIB_ARGUMENTS": "\n".join(only)}).returncode == 0
    assert run(merge, data, GITHUB_STEP_SUMMARY=data / "step.md").returncode == 0
    document = json.loads((data / file).read_text())
    for each in document["benchmarks"]:
        each["stats"]["data"] = [duration / 100 for duration in each["stats"]["data"]]
    (data / file).write_text(json.dumps(document))
    done = run(check, data, **given | {"FIB_ARGUMENTS": "\n".join([*only, option])})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SLOWER: " in done.stdout
    done = run(merge, data, GITHUB_STEP_SUMMARY=data / "slower.md")
    assert done.returncode == 0, done.stderr
    assert "SLOWER: " in (data / "slower.md").read_text()


GH = """#!/usr/bin/env bash
echo "$@" >>calls
case "$*" in
  *commits/*) echo "$FOUND" ;;
  *--paginate*) echo "$KNOWN" ;;
  *body=@*) cp comment.md sent ;;
esac
"""


@pytest.mark.parametrize(
    ("number", "found", "known", "last"),
    [
        ("7", "", "", "api repos/o/r/issues/7/comments -F body=@comment.md"),
        ("", "8", "99", "api --method PATCH repos/o/r/issues/comments/99 -F body=@comment.md"),
        ("", "", "", "api repos/o/r/commits/abc/pulls --jq .[0].number // empty"),
    ],
)
def test_one_comment_is_written_and_written_anew(tmp_path, number, found, known, last):
    program(tmp_path, "gh", GH)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/summary.md").write_text("é" * 50_000)
    text = script(".github/workflows/comment.yml", "Write the comment, or write it anew")
    done = run(text, tmp_path, REPOSITORY="o/r", SHA="abc", NUMBER=number, FOUND=found, KNOWN=known, GH_TOKEN="x")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().splitlines()[-1] == last
    if "body" in last:
        sent = (tmp_path / "sent").read_text()
        assert sent.startswith("<!-- pytest-flashinfer -->\n")
        assert len(sent) < 65_536
