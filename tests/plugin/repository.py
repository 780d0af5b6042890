"""A small data set on disk, and runs of the plugin over it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

REFERENCE = "def run(x, w):\n    return x * w + 1\n"
GOOD = REFERENCE
WRONG = "def run(x, w):\n    return x * w + 2\n"
BASE: dict[str, Any] = {
    "name": "scale_add_h8",
    "op_type": "elementwise",
    "description": "Scale by a row, add one.",
    "axes": {"n": {"type": "var", "description": "rows"}, "h": {"type": "const", "value": 8, "description": "columns"}},
    "inputs": {
        "x": {"shape": ["n", "h"], "dtype": "float32", "description": "values"},
        "w": {"shape": ["h"], "dtype": "float32", "description": "factors"},
    },
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32", "description": "result"}},
    "reference": REFERENCE,
}
WIDE = "250"  # columns: pytest leaves messages out of its short summary that do not fit
QUICK = ("--fib-device=cpu", "--fib-examples=5", "--fib-seconds=2")


def definition(**changes: Any) -> dict[str, Any]:
    """Return a copy of the base definition with some keys replaced; a key set to None is left out."""
    document = deepcopy(BASE) | changes
    return {key: value for key, value in document.items() if value is not None}


@dataclass(frozen=True)
class Case:
    """One test of a finished run, from its junit report."""

    name: str
    outcome: str
    message: str
    text: str
    properties: dict[str, str]


class Finished:
    """A run of the plugin: exit code, output and the tests by name."""

    def __init__(self, code: int, output: str, report: Path) -> None:
        self.code = code
        self.output = output
        self.cases: list[Case] = []
        if report.exists():
            self.cases = [_case(element) for element in ET.parse(report).getroot().iter("testcase")]

    def __getitem__(self, start: str) -> Case:
        """Return the only test whose name starts with `start`."""
        found = [case for case in self.cases if case.name.startswith(start)]
        assert len(found) == 1, f"{start}: {[case.name for case in self.cases]}\n{self.output}"
        return found[0]

    def of(self, word: str) -> list[Case]:
        """Return the tests whose name holds `word`."""
        return [case for case in self.cases if word in case.name]

    def outcomes(self, word: str = "") -> dict[str, str]:
        """Return outcomes by test name."""
        return {case.name: case.outcome for case in self.of(word)}


def _case(element: ET.Element) -> Case:
    for outcome in ("failure", "error", "skipped"):
        child = element.find(outcome)
        if child is not None:
            message, text = child.get("message") or "", child.text or ""
            break
    else:
        outcome, message, text = "passed", "", ""
    out = "".join(part.text or "" for tag in ("system-out", "system-err") for part in element.findall(tag))
    properties = {each.get("name", ""): each.get("value", "") for each in element.iter("property")}
    return Case(element.get("name", ""), outcome, message, text + out, properties)


class Repository:
    """A folder with definitions, workloads and solutions."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> Path:
        """Write a file, making the folders it needs."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def define(self, *, folder: str | None = None, stem: str | None = None, **changes: Any) -> Path:
        """Write a definition made from the base one."""
        document = definition(**changes)
        folder = folder or document.get("op_type") or "elementwise"
        text = json.dumps(document, indent=2)
        return self.write(f"definitions/{folder}/{stem or document['name']}.json", text)

    def sizes(self, *sizes: int, name: str = "scale_add_h8", folder: str = "elementwise") -> Path:
        """Write one workload line of random inputs for each size of the axis n."""
        return self.lines(
            *({"uuid": f"w-{size:04d}", "axes": {"n": size}, "inputs": {"x": RANDOM, "w": RANDOM}} for size in sizes),
            name=name,
            folder=folder,
        )

    def lines(self, *workloads: Any, name: str = "scale_add_h8", folder: str = "elementwise") -> Path:
        """Write workload lines."""
        records = [{"definition": name, "solution": None, "workload": each, "evaluation": None} for each in workloads]
        return self.write(f"workloads/{folder}/{name}.jsonl", "".join(json.dumps(each) + "\n" for each in records))

    def solve(  # noqa: PLR0913
        self,
        name: str = "good",
        source: str = GOOD,
        *,
        of: str = "scale_add_h8",
        author: str = "tests",
        destination: bool | None = False,
        language: str = "python",
        **spec: Any,
    ) -> Path:
        """Write a solution of one source file."""
        spec = {"language": language, "target_hardware": [], "entry_point": "main.py::run", "dependencies": []} | spec
        if destination is not None:
            spec["destination_passing_style"] = destination
        document = {"name": name, "definition": of, "author": author, "spec": spec}
        document["sources"] = [{"path": "main.py", "content": source}]
        return self.write(f"solutions/{author}/{of}/{name}.json", json.dumps(document, indent=2))

    def run(self, *options: str, apart: bool = False, timeout: float = 300) -> Finished:
        """Run pytest on this folder, in this process or, with `apart`, in one of its own."""
        report = self.root / "junit.xml"
        report.unlink(missing_ok=True)
        junit = [f"--junitxml={report}", "-o", "junit_logging=all"]
        arguments = ["--fib-solutions=solutions", *QUICK, *junit, *options]
        code, output = self._apart(arguments, timeout) if apart else self.main(arguments)
        return Finished(code, output, report)

    def main(self, arguments: list[str]) -> tuple[int, str]:
        """Run pytest within this process, as pytester does; for fixtures of module scope, which cannot have that."""
        output, modules, path = io.StringIO(), sys.modules.copy(), sys.path.copy()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
            patch.chdir(self.root)
            patch.setenv("COLUMNS", WIDE)
            code = pytest.main(arguments)
        sys.modules.clear()
        sys.modules.update(modules)
        sys.path[:] = path
        return int(code), output.getvalue()

    def _apart(self, arguments: list[str], timeout: float) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", *arguments]
        wide = os.environ | {"COLUMNS": WIDE}
        done = subprocess.run(
            command, cwd=self.root, env=wide, capture_output=True, text=True, timeout=timeout, check=False
        )
        return done.returncode, done.stdout + done.stderr


RANDOM = {"type": "random"}
