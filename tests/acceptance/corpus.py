"""Run a corpus of solutions through the real plugin once, as users would; read the verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

CORPUS = Path(__file__).parent.parent / "corpus"


@dataclass
class Verdict:
    """What one solution got: item ids by outcome, and the first failure's text."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    message: str = ""


def run_plugin(root: Path, *options: str, timeout: float = 1800) -> tuple[dict[str, Verdict], str]:
    """Run pytest in `root` with the plugin; return verdicts by solution name, and the output."""
    report = root / "junit.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--fib-solutions=solutions",
        f"--junitxml={report}",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=timeout, check=False)
    assert report.exists(), done.stdout + done.stderr
    verdicts: dict[str, Verdict] = defaultdict(Verdict)
    for case in ET.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        if "[" not in name or name.startswith("test_reference"):
            continue
        solution = name.partition("[")[2].removesuffix("]").partition("-")[0]
        verdict = verdicts[solution]
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            verdict.failed.append(name)
            verdict.message = verdict.message or (bad.get("message") or bad.text or "")
        elif case.find("skipped") is not None:
            verdict.skipped.append(name)
        else:
            verdict.passed.append(name)
    return dict(verdicts), done.stdout + done.stderr


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, making the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
