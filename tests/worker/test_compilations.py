"""A worker hears what Triton compiles, and says so in plain values that the judge reads with distrust."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_flashinfer.worker.compilations import Compilations
from pytest_flashinfer.worker.outcome import Compilation
from pytest_flashinfer.worker.replies import compilations

REAL = """
import json, sys
from pytest_flashinfer.worker.compilations import Compilations
heard = Compilations()
heard.listen()  # Triton is not there yet
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

@triton.jit
def scale(x, n, STEP: tl.constexpr):
    offsets = tl.arange(0, 16)
    tl.store(x + offsets, tl.load(x + offsets) * STEP, mask=offsets < n)

def build(step):
    signature = {"x": "*fp32", "n": "i32", "STEP": "constexpr"}
    source = ASTSource(fn=scale, signature=signature, constexprs={"STEP": step})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))

build(2)
heard.listen()
build(3)
build(4)
build(3)
json.dump([heard.take(), heard.take()], sys.stdout)
"""


@pytest.fixture
def knobs(monkeypatch):
    made = SimpleNamespace(listener=None)
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(compilation=made))
    return made


def source(constants, name="rows"):
    return SimpleNamespace(name=name, fn=SimpleNamespace(arg_names=["x", "n", "BLOCK"]), constants=constants)


def heard(knobs, *sources):
    made = Compilations()
    made.listen()
    for each in sources:
        knobs.listener(src=each, metadata={}, metadata_group={}, times=SimpleNamespace(total=250_000), cache_hit=False)
    return made


def test_triton_itself_tells_of_each_compilation_once(tmp_path):
    """It compiles for a card without one; what is taken from its cache on disk takes no time."""
    pytest.importorskip("triton.knobs")
    script = tmp_path / "kernels.py"  # Triton reads the sources of kernels
    script.write_text(REAL)
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
    rows, again = json.loads(done.stdout)
    assert [(name, constants) for name, _, constants in rows] == [("scale", {"STEP": n}) for n in ("3", "4", "3")]
    assert rows[0][1] > 10 * rows[2][1] > 0
    assert again == []


def test_constants_are_named_by_their_place(knobs):
    """As a tuple or, before that, as a number; of values that are no plain ones nothing is said."""
    made = heard(knobs, source({(2,): 64, (1,): object()}), source({2: 128}), source({(7,): 1}), source(None))
    assert made.take() == [
        ("rows", 0.25, {"BLOCK": "64"}), ("rows", 0.25, {"BLOCK": "128"}), ("rows", 0.25, {}), ("rows", 0.25, {}),
    ]  # fmt: skip
    assert made.take() == []


def test_what_tells_nothing_of_itself_disturbs_no_compilation(knobs):
    made = Compilations()
    made.listen()
    knobs.listener()
    assert made.take() == [("", 0.0, {})]


def test_a_solution_that_listens_itself_goes_on(knobs):
    knobs.listener = own = object()
    heard = Compilations()
    heard.listen()
    assert knobs.listener is own


def test_a_triton_that_does_not_tell_is_left_alone(monkeypatch):
    for module in (SimpleNamespace(), SimpleNamespace(compilation=SimpleNamespace())):
        monkeypatch.setitem(sys.modules, "triton.knobs", module)
        Compilations().listen()
        assert not hasattr(getattr(module, "compilation", None), "listener")


def test_of_many_the_first_are_told(knobs):
    assert len(heard(knobs, *[source({})] * 1000).take()) == 64


def test_the_judge_reads_what_it_was_told():
    reply = json.loads(json.dumps({"compiled": [("rows", 0.25, {"BLOCK": "64"})]}))
    assert compilations(reply) == (Compilation("rows", 0.25, {"BLOCK": "64"}),)
    assert compilations({}) == ()


@pytest.mark.parametrize(
    "row",
    [3, [], ["a", 1.0], ["a", "1", {}], ["a", -1.0, {}], ["a", float("inf"), {}], ["a", 1.0, []]],
)
def test_rows_of_another_form_are_dropped(row):
    assert compilations({"compiled": [row, ["b", 1.0, {}]]}) == (Compilation("b", 1.0, {}),)


def test_names_are_short_and_on_one_line_and_can_be_printed():
    told = {"compiled": [["a\nb\x1b[31m\ud800" + "c" * 1000, 1, {"n" * 1000: {"x": 1}}]] * 1000}
    rows = compilations(told)
    assert len(rows) == 64
    assert rows[0].kernel.startswith("a b\\x1b[31m")
    assert len(rows[0].kernel) < 80
    rows[0].kernel.encode()
    assert list(rows[0].constants.items()) == [("n" * 60, "{'x': 1}")]
