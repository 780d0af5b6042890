"""What Triton's CPU interpreter lacks or gets wrong is there and right: a kernel must not be blamed for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from pytest_flashinfer.build.interpreter import _remembering
from pytest_flashinfer.build.libdevice import _absent

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


# What a kernel makes of blocks x and y, and the same of tensors.
IN_BFLOAT16 = {
    "x + y": "x + y",
    "x * y - x": "x * y - x",
    "-x * 2.0 + 1.0": "-x * 2.0 + 1.0",
    "tl.where(x > y, x, y)": "torch.maximum(x, y)",
    "tl.maximum(x, tl.abs(y))": "torch.maximum(x, y.abs())",
    "tl.clamp(x, -1.0, 1.0)": "x.clamp(-1, 1)",
    "tl.fma(x, y, x)": "(x.float() * y.float() + x.float())",
    "tl.full((N, N), 0.1, tl.bfloat16) + x": "torch.full_like(x, 0.1) + x",
    "(x > y).to(tl.bfloat16) + x.to(tl.int32).to(tl.bfloat16)": "(x > y).to(x.dtype) + x.int().to(x.dtype)",
    "tl.dot(x, y)": "x.float() @ y.float()",
    "tl.dot(tl.trans(x * y), y, acc=tl.zeros((N, N), tl.float32))": "(x * y).T.float() @ y.float()",
    "tl.sum(x, axis=1)[:, None] + tl.zeros((N, N), tl.float32)": "x.float().sum(1, keepdim=True).expand_as(x)",
    "tl.max(x, axis=0)[None, :] + y * 0.0": "x.amax(0, keepdim=True).expand_as(x)",
    "tl.argmax(x, axis=1)[:, None] + tl.zeros((N, N), tl.float32)": "x.argmax(1, keepdim=True).expand_as(x)",
    "tl.cumsum(x, axis=1)": "x.float().cumsum(1)",
    "tl.sort(x, dim=1)": "x.sort(1)[0]",
}
FROM_LIBRARY = {
    "libdevice.tanh(u) + libdevice.erf(u)": "torch.tanh(u) + torch.erf(u)",
    "libdevice.pow(tl.abs(u), 1.5)": "u.abs() ** 1.5",
    "libdevice.atan2(u, 3.0)": "torch.atan2(u, torch.full_like(u, 3))",
    "libdevice.rint(u * 8) + libdevice.fast_expf(u)": "torch.round(u * 8) + torch.exp(u)",
    "libdevice.fma(u, y.to(tl.float32), -u) + libdevice.fma(u, 2.0, 1.0)": "u * y.float() - u + u * 2 + 1",
    "libdevice.round(tl.where(u > 0, 2.5, -0.5))": "torch.where(u > 0, 3.0, -1.0)",
    "libdevice.cbrt(u) * libdevice.exp10(u) + libdevice.saturatef(u)":
        "u.abs() ** (1 / 3) * u.sign() * 10**u + u.clamp(0, 1)",
    "tl.where(libdevice.isnan(u), 1.0, u * libdevice.rsqrt(tl.sum(u * u)))": "u / u.square().sum().sqrt()",
}
KERNEL = """
@triton.jit
def kernel_{number}(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    u = x.to(tl.float32)
    tl.store(c + at, ({made}).to(tl.float32))
"""
COMPARED = """
torch.manual_seed(0)
x, y = torch.randn(16, 16).bfloat16(), torch.randn(16, 16).bfloat16()
u = x.float()
for kernel, expected in zip(kernels, (each() for each in right), strict=True):
    found = torch.empty(16, 16)
    kernel[(1,)](x, y, found, 16)
    off = (found - expected.float()).abs() / expected.float().abs().clamp(min=1.0)
    assert off.max() < 2**-8, f"{kernel.__name__}: {off.max()}"
print("right:", len(kernels))
"""


@pytest.mark.parametrize("table", [IN_BFLOAT16, FROM_LIBRARY], ids=["bfloat16", "library"])
def test_what_the_interpreter_gets_wrong_or_lacks(tmp_path, table) -> None:
    pytest.importorskip("triton")
    head = "import torch, triton, triton.language as tl\nfrom triton.language.extra import libdevice\n"
    head += "from pytest_flashinfer.build.interpreter import repair\n"
    kernels = "".join(KERNEL.format(number=number, made=made) for number, made in enumerate(table))
    names = ", ".join(f"kernel_{number}" for number in range(len(table)))
    right = ", ".join(f"lambda: {each}" for each in table.values())
    script = tmp_path / "script.py"
    script.write_text(f"{head}repair()\n{kernels}kernels = [{names}]\nright = [{right}]\n{COMPARED}")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"right: {len(table)}\n", done.stderr


MEMORY = """
import torch, triton, triton.language as tl
from pytest_flashinfer.build.interpreter import repair
repair()
@triton.jit
def count(x, ids, total, before, n, BLOCK: tl.constexpr):
    for i in range(0, tl.cdiv(n, BLOCK)):
        at = i.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        added = tl.atomic_add(total + tl.load(ids + at, mask, 0), tl.load(x + at, mask, 0.0), mask)
        tl.store(before + at, added, mask)
@triton.jit
def swap(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.atomic_xchg(y + at, tl.load(x + at)))
torch.manual_seed(0)
x, ids = torch.randn(100).bfloat16(), torch.randint(0, 7, (100,))
total, before = torch.zeros(7).bfloat16(), torch.full((100,), 9.0).bfloat16()
count[(1,)](x, ids, total, before, 100, 32)
sums, found = torch.zeros(7).bfloat16(), []
for value, id in zip(x, ids):
    found.append(sums[id].item())
    sums[id] += value
assert torch.equal(total, sums), (total, sums)
assert before.tolist() == found
for dtype in (torch.float32, torch.float64):
    one, other = torch.zeros(8, dtype=dtype), torch.full((8,), 2.5, dtype=dtype)
    swap[(1,)](one, other, 8)
    assert one.tolist() == [2.5] * 8 and other.tolist() == [0.0] * 8
"""
NAMES = """
from triton.language import arange, cdiv, constexpr, exp, load, program_id, static_range, store, zeros
from triton.language import float32, int64, range as counted, sum as total
from triton.language.extra.cuda import gdc_wait, libdevice
from triton.language.extra.cuda.libdevice import tanh
from triton.language.math import rsqrt
e_to_the = exp
@triton.jit
def bent(x):
    return e_to_the(x) + rsqrt(x) + tanh(x) + libdevice.erf(x)
@triton.jit
def kernel(x, out, n, BLOCK: constexpr):
    gdc_wait()
    sums = zeros((BLOCK,), float32)
    for i in counted(cdiv(n, BLOCK)):
        at = i.to(int64) * BLOCK + arange(0, BLOCK)
        sums += load(x + at, mask=at < n, other=0.0)
    for i in static_range(3):
        sums += i
    store(out + program_id(0), bent(total(sums, 0) - 3 * BLOCK))
@triton.jit
def plain(x, out):
    triton.language.extra.cuda.gdc_launch_dependents()
    triton.language.store(out, triton.language.load(x) * 2)
x, out = torch.rand(100) / 100, torch.zeros(1)
kernel[(1,)](x, out, 100, 32)
s = x.sum()
torch.testing.assert_close(out[0], s.exp() + s.rsqrt() + s.tanh() + s.erf())
plain[(1,)](x, out)
assert out == x[0] * 2
"""


def test_what_a_compiler_knows_and_the_interpreter_does_not(tmp_path) -> None:
    pytest.importorskip("triton")
    names = tmp_path / "names.py"  # a module of its own, without a name for triton.language
    names.write_text(f"import torch, triton\n{NAMES}")
    script = tmp_path / "script.py"
    script.write_text(f"{MEMORY}import names\nprint('right')\n")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(NotImplementedError, match=r"no libdevice\.erfcx; write it with"):
        _absent("erfcx")(1.0)


def test_narrowing_rounds_to_nearest() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


TUNED = """
import torch, triton, triton.language as tl
from pytest_flashinfer.build.interpreter import repair
repair()
configs = [triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((64, 1), (128, 4), (256, 8))]
@triton.autotune(configs=configs, key=["n"], **OPTIONS)
@triton.jit
def double(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, 2 * tl.load(source + at, mask=at < n), mask=at < n)
source = torch.randn(1000)
target = torch.empty_like(source)
double[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](source, target, 1000)
assert torch.equal(target, 2 * source)
assert double.best_config is configs[FIRST], double.best_config
"""


@pytest.mark.parametrize(
    ("options", "first"),
    [("{}", 0), ("dict(warmup=25, rep=100)", 0), ("dict(prune_configs_by={'early_config_prune': keep_last})", 2)],
)
def test_an_autotuned_kernel_runs_its_first_configuration(tmp_path, options: str, first: int) -> None:
    pytest.importorskip("triton")
    keep_last = "def keep_last(configs, *_, **__): return configs[2:]\n"
    script = f"{keep_last}OPTIONS, FIRST = {options}, {first}\n{TUNED}"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    path = tmp_path / "tuned.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class _Interpreter:
    """As much of Triton's module as `repair` needs to replace its search."""

    def __init__(self):
        self.asked = 0
        self.tl = SimpleNamespace(core=SimpleNamespace(is_builtin=self.is_builtin))

    def is_builtin(self, member):
        self.asked += 1
        return getattr(member, "builtin", False)

    @staticmethod
    def _patch_attr(owner, name, _member, builder):
        setattr(owner, name, builder)


def _builtin():
    def function():
        pass

    function.builtin = True
    return function


def test_functions_of_the_language_are_replaced_each_time_and_looked_for_once() -> None:
    interpreter, owner = _Interpreter(), SimpleNamespace(add=_builtin(), other=1)
    patch = _remembering(interpreter)
    originals = dict(vars(owner))
    patch(owner, "replaced")
    assert (owner.add, owner.other) == ("replaced", 1)
    patch(owner, "nested")
    assert owner.add == "replaced", "as long as it is replaced it is left alone"
    vars(owner).update(originals)
    interpreter.asked = 0
    patch(owner, "again")
    assert owner.add == "again"
    assert interpreter.asked == 1
    owner.late = _builtin()
    patch(owner, "found")
    assert (owner.add, owner.late) == ("again", "found")
