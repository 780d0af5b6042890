"""Every command and every file shown in README and docs works as shown, in a small copy of the data set.

Installing is what `.ci/run` does. Commands that ask for a card run without that option where there is none.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from .repository import Repository

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KEPT = "rmsnorm_h128"  # the smallest definition that the pages speak of
LARGEST = 32  # rows of its workloads that are kept


@dataclass(frozen=True)
class Command:
    page: Path
    line: str

    @property
    def runnable(self) -> str:
        quick = f"{self.line} --fib-seconds=2 --fib-examples=4"
        return quick if shutil.which("nvidia-smi") else quick.replace(" --fib-require-gpu", "")


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


COMMANDS = [
    Command(page, line)
    for page in PAGES
    for text in blocks(page, "sh")
    for line in text.splitlines()
    if "pip install" not in line
]


def is_small(workload: str) -> bool:
    """Whether Triton's interpreter is done with a workload line at once."""
    return json.loads(workload)["workload"]["axes"]["batch_size"] <= LARGEST


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of one definition, and what README tells its reader to write."""
    root = tmp_path_factory.mktemp("documents")
    for folder in ("definitions", "workloads", "solutions"):
        for path in (ROOT / folder).rglob(f"*{KEPT}.json*"):
            target = root / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            small = [
                line for line in path.read_text().splitlines(keepends=True) if path.suffix != ".jsonl" or is_small(line)
            ]
            target.write_text("".join(small))
    for text in blocks(ROOT / "README.md", "python"):
        name = re.match(r"# (\S+\.py)\n", text)[1]
        (root / name).write_text(text)
    return root


def run(command: str, root: Path) -> tuple[int, str]:
    """Run a pytest command in this process: the pages show no other shell syntax."""
    program, *arguments = shlex.split(command)
    assert program == "pytest", command
    return Repository(root).main(arguments)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page.stem}: {command.line}")
def test_command(command: Command, copy: Path) -> None:
    code, output = run(command.runnable, copy)
    assert code == 0, output
    assert "passed" in output


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 4  # the pattern above still finds them


def example(page: str, name: str) -> str:
    """Return the Python file of a page whose first line names its path."""
    found = [text for text in blocks(ROOT / "docs" / page, "python") if text.startswith(f"# {name}\n")]
    assert len(found) == 1
    return found[0]


def test_extending_inputs(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path / "data")
    name = "definitions/rmsnorm/conftest.py"
    text = example("extending.md", name)
    (tmp_path / "data" / name).write_text(text)
    kernel = (tmp_path / "data" / "my_rmsnorm.py").read_text()
    (tmp_path / "data" / "my_rmsnorm.py").write_text(
        kernel.replace("    output =", "    assert (weight == 1).all()\n    output =")
    )
    code, output = run("pytest --fib-solutions=my_rmsnorm.py -k test_correct", tmp_path / "data")
    assert code == 0, output


@pytest.mark.parametrize("name", ["definitions/softmax/conftest.py", "definitions/ranking/conftest.py"])
def test_extending_other_examples(name: str, repository, kernels) -> None:
    """The page's tolerance and comparison, beside a definition that has what they speak of."""
    x = {"shape": ["n", "h"], "dtype": "float32"}
    changes = {"outputs": {"scores": x}, "reference": "def run(x, w):\n    return x * w + 1\n"}
    repository.define(folder=Path(name).parts[1], name="other_h8", op_type=Path(name).parts[1], **changes)
    repository.sizes(4, name="other_h8", folder=Path(name).parts[1])
    scale = "1" if "softmax" in name else "2"  # only the order counts for the second
    repository.solve("other", f"def run(x, w):\n    return {scale} * (x * w + 1)\n", of="other_h8")
    repository.write(name, example("extending.md", name))
    kernels("-k", "test_correct and other_h8").assert_outcomes(passed=1, deselected=9)


def test_tolerance_lines_of_the_page_are_read(repository, kernels, pytester) -> None:
    (text,) = blocks(ROOT / "docs/verdicts.md", "ini")
    pytester.makeini(text)
    assert kernels("--collect-only").ret == 0
