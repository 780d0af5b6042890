"""Every command on the pages about formats and kernel calls works as shown, in a small copy of the data set."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flashinfer.data.schema import NAMES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/formats.md", ROOT / "docs/calls.md"]
KEPT = "rmsnorm_h128"
LARGEST = 32


def commands(page):
    blocks = re.findall(r"^```bash\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """One definition with a few small workloads and one solution, the model records, the example."""
    root = tmp_path_factory.mktemp("formats")
    for name in (f"definitions/rmsnorm/{KEPT}.json", f"workloads/rmsnorm/{KEPT}.jsonl"):
        (root / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, root / name)
    lines = (root / f"workloads/rmsnorm/{KEPT}.jsonl").read_text().splitlines(keepends=True)
    small = [line for line in lines if json.loads(line)["workload"]["axes"]["batch_size"] <= LARGEST][:1]
    (root / f"workloads/rmsnorm/{KEPT}.jsonl").write_text("".join(small))
    shutil.copytree(ROOT / f"solutions/torch/rmsnorm/{KEPT}", root / f"solutions/torch/rmsnorm/{KEPT}")
    for folder in ("calls", "examples"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copy(ROOT / "examples/rows_at_once.py", root / "my_rmsnorm.py")
    return root


def run(command, root):
    quick = f"{command} --fib-seconds=1 --fib-examples=2" if command.startswith("pytest") else command
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "-k 'not test_sizes'",  # a command's own -k wins
    }
    return subprocess.run(
        ["bash", "-euc", quick], cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_their_order(page, copy):
    given = commands(page)
    assert given
    for command in given:
        done = run(command, copy)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if command.endswith("--fib-resume"):
            assert " 2 skipped" in done.stdout
        if "--fib-calls" in command:
            assert "Qwen/Qwen3-30B-A3B, SGLang: 1 of 9 kernels measured" in done.stdout
            assert "next: rmsnorm_h128, 100% of the time" in done.stdout
    if page.stem == "formats":
        [result] = [json.loads(line) for line in (copy / "results.jsonl").read_text().splitlines()]
        assert result["solution"] == "rows_at_once"
        assert result["agent_trace"].endswith("examples/rows_at_once.trace.json")


def test_the_page_names_every_schema():
    text = PAGES[0].read_text()
    assert all(f"`{name}`" in text for name in NAMES)
