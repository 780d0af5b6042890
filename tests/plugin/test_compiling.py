"""test_sizes notices a kernel that Triton compiles anew for every size, which leaves no time to try many."""

from __future__ import annotations

import uuid

import pytest

from .repository import Repository

# Compiles for a card, which Triton can do without one, and computes by other means. A name of its own keeps what an
# earlier run of this test has compiled from being found in the cache.
COMPILES = """
from triton import compile
from triton import language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource
from triton.runtime.jit import JITFunction

def NAME(x, n, ROWS: tl.constexpr):
    tl.store(x + n, tl.load(x) * ROWS)

NAME, done = JITFunction(NAME), set()

def run(x, w):
    rows = len(x) if EACH else 1
    if rows not in done:
        done.add(rows)
        signature = {"x": "*fp32", "n": "i32", "ROWS": "constexpr"}
        compile(ASTSource(fn=NAME, signature=signature, constexprs={"ROWS": rows}), target=GPUTarget("cuda", 90, 32))
    return x * w + 1
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    pytest.importorskip("triton.knobs")
    repository = Repository(tmp_path_factory.mktemp("compiling"))
    repository.define()
    repository.sizes(4)
    for name, each in (("anew", "True"), ("once", "False")):
        source = COMPILES.replace("NAME", f"rows_{uuid.uuid4().hex[:12]}").replace("EACH", each)
        repository.solve(name, source)
    repository.solve("wrong", source.replace("+ 1", "+ 2"))
    return repository.run("-k", "test_sizes", "--fib-examples=20", "--fib-seconds=60", "-rP")


def warnings_of(done):
    return done.output.partition("warnings summary")[2].partition("Docs: ")[0]


def test_a_kernel_that_is_compiled_for_every_size_is_warned_of(run):
    case = run["test_sizes[anew]"]
    assert case.outcome == "passed"
    assert 8 < int(case.properties["compilations"]) <= 20
    assert float(case.properties["compile_s"]) > 0
    assert "test_sizes[anew]: Triton compiled" in warnings_of(run)
    assert "its constant `ROWS` had" in warnings_of(run)


def test_one_that_is_compiled_once_is_not(run):
    case = run["test_sizes[once]"]
    assert case.outcome == "passed"
    assert case.properties["compilations"] == "1"
    assert "test_sizes[once]" not in warnings_of(run)
    assert "Triton compiled once in 20 cases" in run.output


def test_nor_one_that_is_wrong(run):
    assert run["test_sizes[wrong]"].outcome == "failure"
    assert "test_sizes[wrong]" not in warnings_of(run)
