"""C++ and CUDA solutions with the `tvm-ffi` binding, compiled by the package apache-tvm-ffi."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build import binding
from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.build.extension import build_once, card_arch, compiler_failure, digest, tools_on_path
from pytest_flashinfer.build.python import importable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.build.base import Request


def missing() -> str | None:
    """Say that the package is missing, or `None`."""
    return None if importable("tvm_ffi") else "binding tvm-ffi needs the package tvm_ffi; pip install apache-tvm-ffi"


def build(request: Request, code: str, include: list[str]) -> Callable[..., Any]:
    """Compile the sources, whose text without comments is `code`, and return the entry function.

    Sources without an export of their own get a generated one. torch tensors passed to the function arrive as
    `tvm::ffi::TensorView`, without a copy. Raises BuildError for what the author can mend.
    """
    reason = missing()
    if reason is not None:
        raise BuildError(reason)
    import tvm_ffi
    import tvm_ffi.cpp

    function = request["entry_function"]
    generated = "" if binding.exports_tvm(code) else binding.tvm_binding(code, function, request["entry_file"])
    arch = card_arch(request["device"])
    key = digest(request, "tvm-ffi", tvm_ffi.__version__, generated, arch, include=include)

    def compile_in(sources: Path, out: Path) -> Path:
        files = _files(request, sources, generated, out)
        entry_folder = (sources / request["entry_file"]).parent
        if arch:
            os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", arch.replace(";", " ").replace("+PTX", ""))
        try:
            with tools_on_path():
                built = tvm_ffi.cpp.build(
                    f"fib_{key}",
                    cpp_files=[file for file in files if not file.endswith(".cu")],
                    cuda_files=[file for file in files if file.endswith(".cu")],
                    extra_include_paths=[str(sources), str(entry_folder), *include],
                    build_directory=str(out),
                )
        except (RuntimeError, OSError) as error:  # RuntimeError carries the compiler's output, OSError a missing tool
            raise compiler_failure(str(error), sources) from error
        return out / Path(built).name

    module = tvm_ffi.load_module(str(build_once(request, key, compile_in)))
    try:
        return module[function]  # type: ignore[no-any-return]
    except (AttributeError, KeyError) as error:
        raise BuildError(f"the library exports no function {function!r}; see entry_point") from error


def _files(request: Request, sources: Path, generated: str, out: Path) -> list[str]:
    """Return what is compiled; a generated export is written into `out`."""
    files = [str(sources / path) for path in binding.units(request["sources"])]
    if generated:
        extra = out / "fib_binding.cpp"
        extra.write_text(generated)
        files.append(str(extra))
    return files
