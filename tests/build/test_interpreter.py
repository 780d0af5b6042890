"""Triton's CPU interpreter rounds to nearest even when it narrows floats."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import torch, triton, triton.language as tl
from pytest_flashinfer.build.interpreter import repair
repair(); repair()
@triton.jit
def narrow(source, target, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(source + at, mask=at < n)
    tl.store(target + at, value.to(target.dtype.element_ty), mask=at < n)
edges = torch.tensor([127.97, 0.0, -0.0, 1.00390625, 1.01171875])
source = torch.cat([torch.randn(1000), torch.randn(1000) * 1e-3, edges])
narrow_types = ((torch.bfloat16, torch.int16), (torch.float8_e4m3fn, torch.uint8), (torch.float8_e5m2, torch.uint8))
for dtype, bits in narrow_types:
    target = torch.empty(source.shape, dtype=dtype)
    narrow[(1,)](source, target, source.numel(), BLOCK=4096)
    wrong = (target.view(bits) != source.to(dtype).view(bits)).sum().item()
    print(dtype, wrong)
    assert wrong == 0
"""


def test_narrowing_rounds_to_nearest() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
