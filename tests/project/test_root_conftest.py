"""The conftest.py of this repository: shipped kernels are searched for a moment, anybody else's as long as usual.

And that of the tests, which pytest loads in the main job as well: it changes nothing there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINE = 'definition = "rmsnorm_h128"\n\n\ndef run(hidden_states, weight):\n    return hidden_states\n'


def header(*options: str, cwd: Path = ROOT) -> str:
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-k", "rmsnorm_h128", "--fib-device=cpu", *options]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    return next((line for line in done.stdout.splitlines() if "--fib-seed=" in line), done.stdout + done.stderr)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return f"--fib-solutions={path}"


def test_the_shipped_kernels_are_searched_for_a_moment() -> None:
    assert "--fib-seconds=0.2" in header("--fib-solutions=solutions/", "-v")


def test_others_are_searched_as_long_as_usual(mine: str) -> None:
    assert "--fib-seconds" not in header(mine, "-v")
    assert "--fib-seconds" not in header(mine, "--fib-solutions=solutions/", "-v")


def test_what_is_asked_for_stands() -> None:
    assert "--fib-seconds=2" in header("--fib-solutions=solutions/", "--fib-seconds=2", "-v")


def test_the_tests_own_conftest_hides_nothing_from_a_run_in_the_root(tmp_path: Path, mine: str) -> None:
    summary = tmp_path / "summary.md"
    environ = os.environ | {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    Path(mine.partition("=")[2]).write_text("definition = 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", f"--fib-solutions={tmp_path}", "--fib-device=cpu", "-q", "-k", "mine"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert "::error file=" in done.stdout, done.stdout + done.stderr
    assert summary.exists()
