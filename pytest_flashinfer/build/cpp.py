"""C++ and CUDA solutions, compiled by `torch.utils.cpp_extension`."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build import binding, tvm_ffi
from pytest_flashinfer.build.base import entry_path
from pytest_flashinfer.build.errors import BuildError, describe
from pytest_flashinfer.build.extension import (
    build_once,
    card_arch,
    compiler_failure,
    digest,
    find_nvcc,
    find_tool,
    tools_on_path,
)
from pytest_flashinfer.build.python import PythonBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.build.base import Request

FLAGS = ("-O3",)


class CppBuilder:
    """Compiles C++ (`cpp`), CUDA (`cuda`) or CUDA with CUTLASS's headers (`cutlass`) into an extension.

    A source may bind itself (`PYBIND11_MODULE`, `TORCH_LIBRARY`, a TVM FFI export); for a plain function such as
    `void run(torch::Tensor x, torch::Tensor y)` a binding is generated. A `.py` entry file is imported instead and
    loads its C++ itself.
    """

    def __init__(self, language: str) -> None:
        self.languages = (language,)
        self.cuda = language != "cpp"

    def needs_card(self, device: str) -> str | None:
        """Say that `device` is no card where this language needs one, or `None`."""
        if self.cuda and device == "cpu":
            return f"language {self.languages[0]} needs a CUDA device; this run is on the CPU"
        return None

    def unavailable(self, device: str) -> str | None:
        """Say what is missing to compile for `device`, or `None`."""
        name = self.languages[0]
        if self.needs_card(device):
            return self.needs_card(device)
        if self.cuda and find_nvcc() is None:
            return f"language {name} needs nvcc; install the CUDA toolkit or set CUDA_HOME"
        if find_tool(os.environ.get("CXX", "c++"), "g++", "clang++") is None:
            return f"language {name} needs a C++ compiler; install g++ or set CXX"
        if find_tool("ninja") is None:
            return f"language {name} needs ninja; pip install ninja"
        if name == "cutlass" and _cutlass_include() is None:
            return "language cutlass needs CUTLASS's headers; set CUTLASS_PATH to its checkout"
        return None

    def build(self, request: Request, folder: Path) -> Callable[..., Any]:
        """Compile the sources, or take them from the cache, and return the entry function. Raises BuildError."""
        entry = entry_path(request, folder)
        if entry.suffix == ".py":
            return PythonBuilder(self.languages[0]).build(request, folder)
        if not binding.units(request["sources"]):
            raise BuildError(f"{request['entry_file']}: no source has one of the suffixes {', '.join(binding.UNITS)}")
        code = binding.code_of(request["sources"])
        if request["binding"] == "tvm-ffi" or (request["binding"] is None and binding.exports_tvm(code)):
            return tvm_ffi.build(request, code, include_paths(self.languages[0]))
        if request["binding"] not in (None, "torch"):
            raise BuildError(f"binding {request['binding']!r} is not known; one of: torch, tvm-ffi")
        return _build_torch(request, code, include_paths(self.languages[0]))


def include_paths(language: str) -> list[str]:
    """Return the include folders that `language` adds to the solution's own."""
    include = _cutlass_include() if language == "cutlass" else None
    return [include] if include else []


def _cutlass_include() -> str | None:
    home = os.environ.get("CUTLASS_PATH")
    spec = importlib.util.find_spec("cutlass_library")  # the PyPI package nvidia-cutlass carries the headers
    roots = (
        [Path(home)] if home else [Path(place) / "source" for place in (spec and spec.submodule_search_locations) or ()]
    )
    return next((str(root / "include") for root in roots if (root / "include").is_dir()), None)


def _build_torch(request: Request, code: str, include: list[str]) -> Callable[..., Any]:
    import torch

    function, own = request["entry_function"], binding.module_name(code)
    namespace = binding.library_name(code)
    generated = "" if own or namespace else binding.torch_binding(code, function, request["entry_file"])
    arch = card_arch(request["device"])
    key = digest(request, "torch", torch.__version__, arch, FLAGS, generated, include=include)
    name = f"fib_{key}" if own in (None, "TORCH_EXTENSION_NAME") else str(own)
    job = _Job(request, name, generated, include, arch, bool(own or generated))
    library = build_once(request, key, job.compile)
    module = _import(name, library) if job.is_module else None
    if module is None or (namespace and not hasattr(module, function)):
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        module = getattr(torch.ops, name if namespace == "TORCH_EXTENSION_NAME" else str(namespace))
    found = getattr(module, function, None)
    if found is None:
        names = ", ".join(name for name in dir(module) if not name.startswith("_")) or "none"
        raise BuildError(f"the extension has no function {function!r}; functions found: {names}; see entry_point")
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Job:
    """One compilation, with everything that `torch.utils.cpp_extension.load` has to know."""

    request: Request
    name: str
    generated: str  # the text of the generated binding, empty where the sources bind themselves
    include: list[str]
    arch: str | None
    is_module: bool  # a Python module; otherwise a library that registers operators

    def compile(self, sources: Path, out: Path) -> Path:
        """Compile the files in `sources` into `out`; raises `BuildError` with the compiler's output."""
        from torch.utils import cpp_extension

        files = [str(sources / path) for path in binding.units(self.request["sources"])]
        if self.generated:
            extra = out / "fib_binding.cpp"
            extra.write_text(self.generated)
            files.append(str(extra))
        entry_folder = (sources / self.request["entry_file"]).parent
        if self.arch:
            os.environ["TORCH_CUDA_ARCH_LIST"] = self.arch
        # torch takes equal inputs for built, in this process, even where their build failed.
        cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(self.name, None)
        try:
            with tools_on_path():
                cpp_extension.load(
                    self.name,
                    files,
                    extra_cflags=list(FLAGS),
                    extra_cuda_cflags=[*FLAGS, "-lineinfo"],
                    extra_include_paths=[str(sources), str(entry_folder), *self.include],
                    build_directory=str(out),
                    is_python_module=self.is_module,
                )
        except ImportError as error:
            raise BuildError(f"the extension does not load: {describe(error)}", str(error)) from error
        except (RuntimeError, OSError) as error:  # RuntimeError carries the compiler's output, OSError a missing tool
            raise compiler_failure(str(error), sources) from error
        return out / f"{self.name}.so"


def _import(name: str, library: Path) -> Any:
    import torch  # noqa: F401 - the library's symbols are torch's

    loader = ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    if spec is None:
        raise BuildError(f"the extension {library.name} cannot be imported")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise BuildError(f"the extension does not load: {describe(error)}", str(error)) from error
    return module
