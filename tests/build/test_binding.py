from __future__ import annotations

import pytest

from pytest_flashinfer.build import binding
from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.build.extension import compiler_failure

CODE = """
#include <torch/types.h>
#define CHECK(x) \\
  TORCH_CHECK(x)
namespace { int helper(int a) { return a; } }
__global__ void kernel(float* x) {}
template <int N>
void unrolled(float* x) {}
static void hidden(float* x) {}
void run(torch::Tensor x, std::vector<int64_t> sizes, double eps = f(1e-6));
void other() { run(torch::ones({1}), {}, 1.0); if (x) { return; } }
at::Tensor run(
    torch::Tensor x,        // the input
    double eps = f(1e-6)) noexcept {
  return x;
}
"""


def plain(code):
    return binding.code_of([{"path": "a.cpp", "content": code}])


def test_the_prototype_is_that_of_the_definition():
    found = " ".join(binding.prototype(plain(CODE), "run", "a.cpp").split())
    assert found == "at::Tensor run( torch::Tensor x, double eps = f(1e-6));"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("kernel", "is a __global__ kernel"),
        ("unrolled", "static, inline or a template"),
        ("hidden", "static, inline or a template"),
        ("absent", "functions found: helper, kernel, unrolled, hidden, other, run;"),
    ],
)
def test_what_cannot_be_bound_is_refused(function, message):
    with pytest.raises(BuildError, match=message):
        binding.prototype(plain(CODE), function, "a.cpp")


def test_own_exports_are_seen_outside_comments_only():
    code = plain(
        '// PYBIND11_MODULE(no, m)\n/* TORCH_LIBRARY(no, m) */\nauto s = "// text"; PYBIND11_MODULE(mine, m) {}'
    )
    assert binding.module_name(code) == "mine"
    assert binding.library_name(code) is None
    assert not binding.exports_tvm(code)
    assert binding.library_name(plain("TORCH_LIBRARY_FRAGMENT(ops, m) {}")) == "ops"
    assert binding.exports_tvm(plain("TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);"))


def test_included_sources_are_not_compiled_by_themselves():
    sources = [
        {"path": "a.cu", "content": '#include "impl/b.cpp"\n#include <vector>\n'},
        {"path": "impl/b.cpp", "content": ""},
        {"path": "c.cc", "content": ""},
        {"path": "d.cuh", "content": ""},
    ]
    assert binding.units(sources) == ["a.cu", "c.cc"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/s/kernel.cpp:3:14: error: 'foo' was not declared in this scope", "kernel.cpp:3:14 error: 'foo' was not"),
        ('/s/kernel.cu(12): error: identifier "bar" is undefined', "kernel.cu(12) error: identifier"),
        ("/s/kernel.cpp:1:10: fatal error: missing.h: No such file or directory", "kernel.cpp:1:10 error: missing.h"),
        ("ptxas error   : Entry function uses too much shared data", "error: Entry function uses too much"),
        ("a.cpp:(.text+0x1): undefined reference to `f()'", "undefined reference to `f()'"),
        ("nvcc not found", "does not compile: nvcc not found"),
    ],
)
def test_the_first_fault_of_a_compiler_is_the_message(line, message):
    from pathlib import Path

    error = compiler_failure(f"[1/2] c++ ...\n{line}\nninja: build stopped: subcommand failed.\n", Path("/s"))
    assert message in error.message
    assert "[1/2]" in error.log
