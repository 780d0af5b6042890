"""`test_sizes` finds what listed workloads hide: honest authors' bugs fail, their correct twins pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .corpus import CORPUS, Verdict, run_plugin

PLANTED = CORPUS / "planted"
MANIFEST: list[dict[str, Any]] = json.loads((PLANTED / "MANIFEST.json").read_text())
STRIDED_ONLY = {"rms_row_stride_is_hidden", "decode_query_stride_assumed"}


def name_of(entry: dict[str, Any]) -> str:
    return Path(entry["file"]).stem


TWINS = {name_of(entry) for entry in MANIFEST if entry["correct"]}
BUGS = {name_of(entry) for entry in MANIFEST} - TWINS


def lay_out(root: Path, only: set[str]) -> None:
    for part in ("definitions", "workloads", "solutions"):
        shutil.copytree(PLANTED / part, root / part)
    for file in (root / "solutions").rglob("*.json"):
        if file.stem not in only:
            file.unlink()


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory, processes: str) -> dict[str, Verdict]:
    """A bug ends its search when it is found; a correct twin uses up its time, a tenth of the default."""
    found: dict[str, Verdict] = {}
    for kind, names, seconds in (("bugs", BUGS - STRIDED_ONLY, 30), ("twins", TWINS, 1)):
        root = tmp_path_factory.mktemp(kind)
        lay_out(root, names)
        found |= run_plugin(root, processes, "-k", "test_sizes", f"--fib-seconds={seconds}")[0]
    return found


@pytest.fixture(scope="module")
def strided(tmp_path_factory: pytest.TempPathFactory, processes: str) -> dict[str, Verdict]:
    root = tmp_path_factory.mktemp("strided")
    lay_out(root, STRIDED_ONLY | TWINS)
    return run_plugin(root, processes, "-k", "test_sizes", "--fib-layouts=strided", "--fib-seconds=1")[0]


@pytest.mark.parametrize("entry", [e for e in MANIFEST if name_of(e) not in STRIDED_ONLY], ids=name_of)
def test_verdict(entry: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[name_of(entry)]
    assert not verdict.skipped
    if entry["correct"]:
        assert not verdict.failed, verdict.message
    else:
        assert verdict.failed, f"not found: {entry['bug']}"


@pytest.mark.parametrize("name", sorted(STRIDED_ONLY))
def test_strided_inputs_show_the_stride_bugs(name: str, strided: dict[str, Verdict]) -> None:
    assert strided[name].failed


@pytest.mark.parametrize("name", sorted(TWINS))
def test_correct_twins_pass_with_strided_inputs(name: str, strided: dict[str, Verdict]) -> None:
    assert strided[name].passed, strided[name].message
