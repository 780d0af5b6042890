from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_flashinfer.build import BuildError, load
from pytest_flashinfer.build.extension import find_nvcc, find_tool
from pytest_flashinfer.build.registry import BUILDERS, builder_for
from tests.plugin.pages import blocks

needs_compiler = pytest.mark.skipif(find_tool("g++") is None, reason="no g++")

[PAGE] = [
    block.text for block in blocks(Path(__file__).parents[2] / "docs/cpp.md") if block.file == "rmsnorm_cpp/main.cpp"
]
SOURCES = {
    "kernel.cpp": PAGE.replace("#include <cmath>\n", '#include <cmath>\n#include "epsilon.h"\n').replace(
        "1e-6f", "epsilon()"
    ),
    "epsilon.h": "#pragma once\ninline float epsilon() { return 1e-6f; }\n",
}
SCRIPT = """
import json, sys, time
from pathlib import Path
import torch
from pytest_flashinfer.build import load
request = json.loads(sys.argv[1])
kernel = load(request, Path(sys.argv[2]))
x, w, y = (torch.randn(size, dtype=torch.bfloat16) for size in ((4, 8), (8,), (4, 8)))
kernel.function(x, w, y)
torch.testing.assert_close(y, torch.nn.functional.rms_norm(x.float(), (8,), w.float(), 1e-6).bfloat16())
"""


def request(sources, cache, *, language="cpp", entry="kernel.cpp"):
    return {
        "language": language,
        "binding": None,
        "entry_file": entry,
        "entry_function": "run",
        "sources": [{"path": path, "content": content} for path, content in sources.items()],
        "destination_passing": True,
        "module": False,
        "inputs": ["x", "w"],
        "outputs": ["y"],
        "device": "cpu",
        "cache": str(cache),
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def built(cache, tmp_path_factory):
    """The result of two processes that build the same content at the same time."""
    argument = json.dumps(request(SOURCES, cache))
    # A PATH without the environment's scripts, as when pytest is started by its full path.
    environment = {**os.environ, "PATH": os.pathsep.join(["/usr/bin", "/bin"])}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, argument, str(tmp_path_factory.mktemp("worker"))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    return [process.returncode for process in both], outputs


@needs_compiler
def test_a_plain_function_is_bound_and_concurrent_builds_agree(built, cache):
    codes, outputs = built
    assert codes == [0, 0], outputs
    assert len(list((cache / "extensions").glob("*/library"))) == 1


@needs_compiler
def test_the_second_build_takes_the_library_from_the_cache(built, cache, tmp_path):
    import torch

    before = os.times()
    kernel = load(request(SOURCES, cache), tmp_path)
    assert sum(os.times()[:4]) - sum(before[:4]) < 1, "seconds of a processor: others may keep it busy"
    x, w, y = (torch.full(size, 2.0, dtype=torch.bfloat16) for size in ((2, 8), (8,), (2, 8)))
    kernel.function(x, w, y)
    assert y.tolist() == [[2.0] * 8] * 2


@needs_compiler
def test_a_compile_error_names_file_and_line_and_is_repeated(cache, tmp_path):
    sources = {"kernel.cpp": "\n#include <missing.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"}
    for _ in range(2):  # a failed build leaves nothing that the next would take for a result
        with pytest.raises(BuildError, match=r"does not compile: kernel\.cpp:2:10 error: missing\.h") as caught:
            load(request(sources, cache), tmp_path)
        assert "compilation terminated" in caught.value.log


@needs_compiler
def test_an_extension_without_the_entry_function_lists_its_functions(cache, tmp_path):
    source = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static PyObject* scale(PyObject*, PyObject*) { Py_RETURN_NONE; }
static PyMethodDef methods[] = {{"scale", scale, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "own_name_x", "", -1, methods};
#define PYBIND11_MODULE(name, m) PyMODINIT_FUNC PyInit_##name() { return PyModule_Create(&module); }
PYBIND11_MODULE(own_name_x, m)
"""
    with pytest.raises(BuildError, match="no function 'run'; functions found: scale;"):
        load(request({"kernel.cpp": source}, cache), tmp_path)


def test_a_missing_function_is_found_before_anything_is_compiled(tmp_path):
    sources = {"kernel.cpp": "void launch(int) {}\n"}
    with pytest.raises(BuildError, match=r"kernel\.cpp defines no function 'run'; functions found: launch"):
        load(request(sources, tmp_path / "cache"), tmp_path / "folder")
    assert not (tmp_path / "cache" / "extensions").exists()


def test_cuda_without_a_card_is_refused_with_the_reason(tmp_path):
    with pytest.raises(BuildError, match="language cuda needs a CUDA device; this run is on the CPU"):
        load(request({"kernel.cu": ""}, tmp_path, language="CUDA", entry="kernel.cu"), tmp_path)


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "nvcc" in builder_for("cuda").unavailable("cuda:0")
    assert "C++ compiler" in builder_for("cpp").unavailable("cpu")
    assert find_nvcc() is None


def test_a_python_entry_file_loads_its_own_extension(tmp_path):
    sources = {"main.py": "import os\ndef run(x, w, y): return os.environ['TORCH_EXTENSIONS_DIR']\n", "k.cpp": ""}
    kernel = load(request(sources, tmp_path / "cache", entry="main.py"), tmp_path / "folder")
    assert kernel.function(0, 0, 0).startswith(str(tmp_path / "cache"))


@needs_compiler
def test_a_plain_function_is_exported_through_tvm_ffi(cache, tmp_path):
    pytest.importorskip("tvm_ffi")
    import torch

    source = """
#include <tvm/ffi/container/tensor.h>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  for (int64_t i = 0; i < x.size(0) * x.size(1); ++i)
    static_cast<float*>(y.data_ptr())[i] =
        static_cast<float*>(x.data_ptr())[i] * static_cast<float*>(w.data_ptr())[i % x.size(1)] + 1;
}
"""
    wanted = {**request({"kernel.cpp": source}, cache), "binding": "tvm-ffi"}
    x, w, y = torch.randn(3, 8), torch.randn(8), torch.empty(3, 8)
    for _ in range(2):
        load(wanted, tmp_path).function(x, w, y.zero_())
        torch.testing.assert_close(y, x * w + 1)
    with pytest.raises(BuildError, match=r"does not compile: kernel\.cpp:\d+:\d+ error: .*TensorViu"):
        load({**wanted, "sources": [{"path": "kernel.cpp", "content": source.replace("View x", "Viu x")}]}, tmp_path)


def test_the_page_on_languages_names_them_all():
    table = (Path(__file__).parents[2] / "docs/cpp.md").read_text().partition("## Which languages run")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row) if name != "language"]
    assert sorted(named) == sorted(name for each in BUILDERS for name in each.languages)
