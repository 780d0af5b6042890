"""The workflows are YAML that does what README and the gate promise; read here without a YAML library."""

import re
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
    assert [value for _, key, value in found if key == "contents"] == ["read"]
    assert "write" not in {value for _, _, value in found}
    assert "pull_request_target" not in {key for _, key, _ in found}
    assert "secrets." not in path.read_text()


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
    assert re.search(r"runs-on: \[self-hosted, .*gpu\]", text)
    assert "environment: gpu" in text
    assert "pytest --fib-solutions=solutions/ --fib-require-gpu" in text
    for wanted in ("--junitxml=", "--benchmark-json=", "actions/upload-artifact@"):
        assert wanted in text
