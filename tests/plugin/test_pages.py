"""Every block of README and docs is what it says, and every command works as shown, in a small copy of the data set."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from pytest_flashinfer.data.schema import NAMES
from pytest_flashinfer.judge.oracle.truth import OutputTruth

from .pages import MARKS, SHELL, blocks, execute, read, run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = [page for page in PAGES if any(block.language in SHELL for block in blocks(page))]
KEPT = "rmsnorm_h128"
SIZE = 4  # rows of the one workload that is kept: Triton's interpreter is slow


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_are_what_they_say(page):
    assert page.read_text().count("\n```") == 2 * len(blocks(page))
    for block in blocks(page):
        assert block.mark in MARKS
        read(block)


@pytest.fixture
def folder(tmp_path):
    """One definition with a small workload and one solution, the model records, the example."""
    for name in (f"definitions/rmsnorm/{KEPT}.json", f"workloads/rmsnorm/{KEPT}.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    workloads = tmp_path / f"workloads/rmsnorm/{KEPT}.jsonl"
    lines = workloads.read_text().splitlines(keepends=True)
    small = [line for line in lines if json.loads(line)["workload"]["axes"]["batch_size"] == SIZE]
    workloads.write_text("".join(small))
    shutil.copytree(ROOT / f"solutions/torch/rmsnorm/{KEPT}", tmp_path / f"solutions/torch/rmsnorm/{KEPT}")
    for name in ("calls", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "examples/rows_at_once.py", tmp_path / "my_rmsnorm.py")
    return tmp_path


@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_commands_in_their_order(page, folder):
    if page.stem == "definition":
        shutil.rmtree(folder / "definitions")
    printed = "".join(execute(block, folder) for block in blocks(page))
    for text in SHOWN.get(page.stem, ()):
        assert text in printed, printed
    if page.stem == "formats":
        [result] = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        assert result["solution"] == "rows_at_once"
        assert result["agent_trace"].endswith("examples/rows_at_once.trace.json")
    if page.stem == "scale":
        written = set(re.findall(r'<property name="(\w+)"', (folder / "attempts.xml").read_text()))
        assert {"fib_check", "max_abs", "host_s"} <= written
        assert written <= set(re.findall(r"`(\w+)`", page.read_text()))


SHOWN = {
    "kernel": [
        "\nINCORRECT_NUMERICAL: output 'output': never written: the value that every output is filled with ",
        "\n  case: batch_size=1; ",
        "add this workload line to replay it as test_correct:\n",
    ],
    "definition": ["FAILED definitions/elementwise/clamp_scale_h64.json::test_correct[no_clamp-rows100-"],
    "scale": ["\nattempts/two.py 0.0 INCORRECT_NUMERICAL\n", " 2 skipped in "],
    "ci": ["0 faults", "results of solutions: merged"],
    "formats": [" 2 skipped"],
    "calls": [
        "Qwen/Qwen3-30B-A3B, SGLang: 1 of 9 kernels measured",
        "next: rmsnorm_h128, 100% of the time",
    ],
}


@pytest.mark.parametrize("solutions", ["solutions/", "nothing/", "unknown/"])
def test_what_is_only_warned_of_fails_as_the_page_of_ci_says(folder, solutions):
    (folder / "nothing").mkdir()
    (folder / "unknown").mkdir()
    (folder / "unknown/of_no_definition.py").write_text('definition = "rmsnorm_h1"\n\n\ndef run(x):\n    return x\n')
    command = f"pytest --fib-solutions={solutions} --collect-only -q"
    assert run(command, folder)[0] == 0
    assert run(f"{command} -Werror", folder)[0] == (0 if solutions == "solutions/" else 4)


def test_the_page_of_formats_names_every_schema():
    text = (ROOT / "docs/formats.md").read_text()
    assert all(f"`{name}`" in text for name in NAMES)


def test_the_page_on_extending_names_what_a_truth_has():
    about = (ROOT / "docs/extending.md").read_text().partition("`truth.outputs[name]` has")[2].partition(".\n")[0]
    named = re.findall(r"`(\w+)`", about)
    assert named[:2] == ["native", "wide"]
    assert set(named) - {"None"} <= {each.name for each in fields(OutputTruth)}


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES[1:] if f": {page.relative_to(ROOT / 'docs')}\n" not in text + "\n"] == []


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="the extra `docs` is not installed")
def test_the_site_builds(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/scale/index.html").is_file()
