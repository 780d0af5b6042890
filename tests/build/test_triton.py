from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_flashinfer.build import BuildError, load

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale(x, w, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(y + i, tl.load(x + i, mask=m) * tl.load(w + i % 8, mask=m) + 1, mask=m)

def run(x, w, y):
    scale[(triton.cdiv(x.numel(), 64),)](x, w, y, x.numel(), B=64)
"""


def request(function="run"):
    return {
        "language": "Triton",
        "binding": None,
        "entry_file": "main.py",
        "entry_function": function,
        "sources": [{"path": "main.py", "content": KERNEL}],
        "destination_passing": True,
        "module": False,
        "inputs": ["x", "w"],
        "outputs": ["y"],
        "device": "cpu",
        "cache": "",
    }


def test_without_the_interpreter_the_cpu_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BuildError, match="TRITON_INTERPRET=1"):
        load(request(), tmp_path)


def test_runs_in_the_interpreter_and_refuses_a_bare_kernel(tmp_path):
    script = f"""
import sys, torch
from pathlib import Path
from pytest_flashinfer.build import BuildError, load
request = {request()!r}
x, w, y = torch.randn(5, 8), torch.randn(8), torch.full((5, 8), float("nan"))
load(request, Path({str(tmp_path)!r})).function(x, w, y)
torch.testing.assert_close(y, x * w + 1)
try:
    load({request("scale")!r}, Path({str(tmp_path)!r}))
except BuildError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "scale in main.py is a @triton.jit kernel; the entry point is the function that launches it" in done.stdout
