"""The workflows are YAML that does what README and the gate promise; read here without a YAML library."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def entries(path):
    """Return (indent, key, value) of every `key: value` line; fails for tabs and odd indentation."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert "\t" not in line, f"{path}:{number}: a tab"
        match = re.match(r"^( *)(?:- )?([\w-]+):(?: +(.*))?$", line)
        if match and not line.lstrip().startswith("#"):
            assert len(match[1]) % 2 == 0, f"{path}:{number}: odd indentation"
            found.append((len(match[1]), match[2], (match[3] or "").split(" #")[0].strip()))
    return found


def test_there_are_workflows():
    assert {path.name for path in WORKFLOWS} >= {"ci.yml", "gpu.yml"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_token_is_read_only_and_code_of_forks_meets_no_secret(path):
    found = entries(path)
    keys = [key for indent, key, _ in found if indent == 0]
    assert keys.count("permissions") == 1
    assert "pull_request_target" not in {key for _, key, _ in found}
    assert "secrets." not in path.read_text()
    if path.name == "comment.yml":  # it may write one thing, and so it runs nothing that is not on the main branch
        assert [key for _, key, value in found if value == "write"] == ["pull-requests"]
        assert "checkout" not in path.read_text()
    else:
        assert [value for _, key, value in found if key == "contents"] == ["read"]
        assert "write" not in {value for _, _, value in found}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_checkout_forgets_its_token(path):
    text = path.read_text()
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_ci_runs_the_gate_on_the_declared_pythons():
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "run: bash .ci/run" in text
    declared = set(re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()))
    tested = set(re.findall(r"python(?:-version)?: \"(3\.\d+)\"", text))
    assert declared <= tested
    assert {re.match(r"\d+\.\d+", version)[0] for version in re.findall(r"pytest: \"([\d.]+)\"", text)} == {
        "8.2",
        "9.2",
    }


def test_gpu_job_waits_for_approval_and_insists_on_a_card():
    text = (ROOT / ".github/workflows/gpu.yml").read_text()
    jobs = text.split("\n  ")
    assert text.count("runs-on: [self-hosted, linux, gpu]") == text.count("environment: gpu") == 2
    assert "      - uses: ./\n" in text
    assert "require-gpu" not in text, "the action insists by itself"
    assert any(job.startswith("merge:") for job in jobs)


def test_what_a_copy_has_to_replace_is_there():
    text = (ROOT / ".github/workflows/gpu.yml").read_text()
    page = (ROOT / "docs/ci.md").read_text()
    for line in ("uses: ./", "tests", "merge", "pip install -q -c constraints.txt --no-deps ."):
        assert f"`{line}`" in page
        assert re.search(rf"^ +(- )?{re.escape(line)}:?$", text, re.MULTILINE)
    assert text.count("constraints.txt") == 3, "of the job that a copy leaves out, and of the two lines of `merge`"


def test_the_parts_of_the_matrix_are_all_there_is():
    parts = re.findall(r"shard: (\d+)/(\d+), part: (\d+)", (ROOT / ".github/workflows/gpu.yml").read_text())
    assert [(str(n), str(len(parts)), str(n)) for n in range(1, len(parts) + 1)] == parts


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_has_no_complaint():
    done = subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
