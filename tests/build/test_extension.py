"""Which library of an earlier build may be taken for a later one."""

from __future__ import annotations

import os

import pytest

from pytest_flashinfer.build.extension import digest

REQUEST = {
    "language": "cuda",
    "binding": None,
    "entry_file": "k.cu",
    "entry_function": "run",
    "sources": [{"path": "k.cu", "content": "int x;"}],
}


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """Two toolkits with a compiler each, of which one is in use, and headers."""
    for name in ("12.8", "13.0"):
        (tmp_path / name / "bin").mkdir(parents=True)
        nvcc = tmp_path / name / "bin" / "nvcc"
        nvcc.write_text("same")
        nvcc.chmod(0o755)
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    (tmp_path / "include" / "cutlass" / "version.h").write_text("4")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "12.8"))
    return tmp_path


def name(toolkit):
    return digest(REQUEST, "torch", include=[str(toolkit / "include")])


def test_the_same_content_has_the_same_name(toolkit):
    assert name(toolkit) == name(toolkit)


@pytest.mark.parametrize("what", ["toolkit", "compiler", "headers", "CXXFLAGS", "NVCC_APPEND_FLAGS"])
def test_what_another_compiler_makes_of_it_has_another(toolkit, monkeypatch, what):
    before = name(toolkit)
    later = (2_000_000_000, 2_000_000_000)
    if what == "toolkit":
        monkeypatch.setenv("CUDA_HOME", str(toolkit / "13.0"))
    elif what == "compiler":
        os.utime(toolkit / "12.8" / "bin" / "nvcc", later)
    elif what == "headers":
        os.utime(toolkit / "include" / "cutlass" / "version.h", later)
    else:
        monkeypatch.setenv(what, "-O1")
    assert name(toolkit) != before


def test_other_variables_change_nothing(toolkit, monkeypatch):
    before = name(toolkit)
    monkeypatch.setenv("PATH_INFO", "x")
    assert name(toolkit) == before
