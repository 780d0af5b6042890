"""Recorded inputs that are missing, foreign or not what the definition says: case 12."""

import pytest
import torch
from safetensors.torch import save_file

from .repository import RANDOM, Repository

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1234\n"
FOLDER = "blob/workloads/elementwise/scale_add_h8"
GOOD = {"x": torch.arange(32, dtype=torch.float32).reshape(4, 8)}


def entry(file, key="x"):
    return {"type": "safetensors", "path": file, "tensor_key": key}


@pytest.fixture(scope="module")
def case_12(tmp_path_factory):
    base = tmp_path_factory.mktemp("case_12")
    repository = Repository(base / "inside")
    repository.define()
    repository.solve()
    folder = repository.root / FOLDER
    folder.mkdir(parents=True)
    save_file(GOOD, folder / "fine.safetensors")
    (folder / "pointer.safetensors").write_text(POINTER)
    save_file({"other": GOOD["x"]}, folder / "key.safetensors")
    save_file({"x": GOOD["x"].half()}, folder / "half.safetensors")
    save_file({"x": torch.zeros(5, 8)}, folder / "shape.safetensors")
    save_file(GOOD, base / "outside.safetensors")
    (folder / "nothing.safetensors").write_bytes(b"")
    files = {
        "fine": f"./{FOLDER}/fine.safetensors",
        "pointer": f"./{FOLDER}/pointer.safetensors",
        "key": f"./{FOLDER}/key.safetensors",
        "half": f"./{FOLDER}/half.safetensors",
        "shape": f"./{FOLDER}/shape.safetensors",
        "absent": f"./{FOLDER}/absent.safetensors",
        "outside": "../outside.safetensors",
        "nothing": f"./{FOLDER}/nothing.safetensors",
    }
    repository.lines(
        *({"uuid": name, "axes": {"n": 4}, "inputs": {"x": entry(path), "w": RANDOM}} for name, path in files.items())
    )
    return repository.run("-rs", "-k", "test_schema or test_correct or pointer", "--fib-scope=full")


def told(run, name):
    """Return what the run says about one workload: its own items and the data set's check."""
    case = run[f"test_correct[good-n4-{name}"] if run.of(f"test_correct[good-n4-{name}") else None
    line = next((line for line in run["test_schema"].text.splitlines() if name in line), "")
    return case, (case.message + case.text if case else "") + line


def test_case_12_a_recorded_input_is_used(case_12):
    assert case_12["test_correct[good-n4-fine"].outcome == "passed"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pointer", ["Git LFS pointer", "git lfs pull --include"]),
        ("key", ["'x'", "other"]),
        ("half", ["float16", "float32"]),
        ("shape", ["[5, 8]", "[4, 8]"]),
        ("absent", ["absent.safetensors"]),
        ("outside", ["outside"]),
        ("nothing", ["not a safetensors file"]),
    ],
)
def test_case_12_what_is_wrong_with_a_recorded_input_is_said_in_one_line(case_12, name, words):
    case, text = told(case_12, name)
    assert case is None or case.outcome in ("skipped", "failure", "error")
    assert any(all(word in line for word in words) for line in text.splitlines()), text


def test_case_12_a_pointer_is_a_skip_and_no_fault(case_12):
    place = "workloads/elementwise/scale_add_h8.jsonl:2: input `x`: Git LFS pointer"
    for check in ("test_reference[n4-pointer", "test_correct[good-n4-pointer", "test_speed[good-n4-pointer"):
        assert case_12[check].outcome == "skipped"
        assert place in case_12[check].message
    assert "pointer.safetensors" not in case_12["test_schema"].text
