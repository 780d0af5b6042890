from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_flashinfer.build import requirements
from pytest_flashinfer.build.requirements import cannot_run, hardware_mismatch, missing_dependencies, unavailable
from pytest_flashinfer.data.model import Solution

H100 = ("cuda", "NVIDIA H100 80GB HBM3", (9, 0))


def solution(**changes):
    fields = {
        "name": "s",
        "definition": "d",
        "author": "a",
        "language": "python",
        "entry_file": "main.py",
        "entry_function": "run",
        "sources": (),
    }
    return Solution(**{**fields, **changes})


@pytest.mark.parametrize(
    "dependency",
    [
        "torch",
        "torch>=2.8",
        "PyTest >= 8",
        "jsonschema",
        "xdist",  # an import name's distribution is pytest-xdist
        "_pytest",
        "python>=3.10",
        "no-such-thing; python_version < '3'",
        "a recent driver",
    ],
)
def test_satisfied_dependencies(dependency):
    assert missing_dependencies([dependency]) == []


def test_missing_and_too_old_dependencies_say_what_to_install():
    reasons = missing_dependencies(["no-such-thing>=1", "packaging>=9999"])
    assert reasons[0] == "needs no-such-thing>=1; pip install 'no-such-thing>=1'"
    assert reasons[1].startswith("needs packaging>=9999; packaging ")
    assert reasons[1].endswith(" is installed; pip install 'packaging>=9999'")


def test_the_cuda_toolkit_as_a_dependency(monkeypatch):
    monkeypatch.setattr(requirements, "find_nvcc", lambda: None)
    assert missing_dependencies(["cuda>=12"]) == ["needs cuda>=12; install the CUDA toolkit or set CUDA_HOME"]
    monkeypatch.setattr(requirements, "find_nvcc", lambda: "/usr/local/cuda/bin/nvcc")
    assert missing_dependencies(["cuda>=12"]) == []


@pytest.mark.parametrize(
    "target",
    [
        *("NVIDIA_H100", "H100", "NVIDIA H100 PCIe", "h100-sxm5", "sm_90", "sm90a", "compute_90", "9.0", "Hopper"),
        *("cuda", "GPU", "LOCAL", "any", ""),
    ],
)
def test_targets_that_an_h100_meets(target):
    assert hardware_mismatch([target], *H100) is None
    assert hardware_mismatch(["NVIDIA A100", target], *H100) is None


@pytest.mark.parametrize(
    "target",
    [
        *("NVIDIA A100-SXM4-80GB", "H200", "NVIDIA_GH200", "H20", "B200", "sm_100a", "blackwell", "8.9", "cpu"),
        *("AMD_MI300X", "RTX 4090", "80GB", "fpga"),
    ],
)
def test_targets_that_an_h100_does_not_meet(target):
    reason = hardware_mismatch([target], *H100)
    assert reason == f"targets {target}; this card is NVIDIA H100 80GB HBM3 (sm_90)"


@pytest.mark.parametrize(
    ("target", "card", "capability", "meets"),
    [
        ("RTX4090", "NVIDIA GeForce RTX 4090", (8, 9), True),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4080", (8, 9), False),
        ("RTX 4070", "NVIDIA GeForce RTX 4070 Ti", (8, 9), True),
        ("RTX 4070 Ti", "NVIDIA GeForce RTX 4070", (8, 9), False),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", (8, 0), True),
        ("sm_80", "NVIDIA A10", (8, 6), True),
        ("sm_86", "NVIDIA A100-PCIE-40GB", (8, 0), False),
        ("sm_120", "NVIDIA GeForce RTX 5090", (12, 0), True),
        ("NVIDIA Blackwell", "NVIDIA B200", (10, 0), True),
        ("L40S", "NVIDIA L40", (8, 9), False),
    ],
)
def test_other_cards(target, card, capability, meets):
    assert (hardware_mismatch([target], "cuda", card, capability) is None) is meets


def test_no_target_means_anywhere_and_a_card_as_target_still_runs_on_the_cpu():
    assert hardware_mismatch([], *H100) is None
    assert hardware_mismatch(["NVIDIA_H100"], "cpu") is None
    assert cannot_run(solution(target_hardware=("NVIDIA_H100",), language="python"), "cpu") is None


def test_languages():
    assert unavailable("Python", "cpu") is None
    assert unavailable("CUDA", "cpu") == "language cuda needs a CUDA device; this run is on the CPU"
    assert "needs the package tilelang" in unavailable("tilelang", "cuda")
    assert unavailable("brainfuck", "cpu") is None  # its build says what is wrong


def test_a_python_entry_file_compiles_by_its_own_means(monkeypatch):
    monkeypatch.setattr("pytest_flashinfer.build.cpp.find_nvcc", lambda: None)
    assert "needs nvcc" in unavailable("cuda", "cuda", "kernel.cu")
    assert unavailable("cuda", "cuda", "main.py") is None
    assert "on the CPU" in unavailable("cuda", "cpu", "main.py")
    assert "needs the package tilelang" in unavailable("tilelang", "cuda", "main.py")


def test_tvm_ffi_says_what_to_install(monkeypatch):
    monkeypatch.setattr("pytest_flashinfer.build.tvm_ffi.importable", lambda _: False)
    assert unavailable("cpp", "cpu", "kernel.cpp", "tvm-ffi").endswith("pip install apache-tvm-ffi")


def test_all_reasons_in_one_line():
    reason = cannot_run(solution(language="cuda", dependencies=("no-such-thing",)), "cpu")
    assert reason == (
        "language cuda needs a CUDA device; this run is on the CPU; needs no-such-thing; pip install 'no-such-thing'"
    )


def test_nothing_heavy_is_imported():
    heavy = ("torch", "triton", "numpy")
    script = f"import sys, pytest_flashinfer.build.requirements; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["stranger.inner", "stranger.inner.deeper", "unittest.__main__.x"])
def test_what_a_solution_names_is_not_imported(name, tmp_path, monkeypatch):
    """The judge asks, in its own process."""
    package = tmp_path / "stranger"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    assert missing_dependencies([name]) == []
    assert set(sys.modules) == before
