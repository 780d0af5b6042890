"""Which builder answers to which language, and `load`, the one call that the worker makes."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_flashinfer.build.base import Builder, Kernel, Request, write_sources
from pytest_flashinfer.build.cpp import CppBuilder
from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.build.extension import digest
from pytest_flashinfer.build.python import PythonBuilder
from pytest_flashinfer.build.signature import check_signature
from pytest_flashinfer.build.triton import TritonBuilder
from pytest_flashinfer.data.languages import canonical

BUILDERS: tuple[Builder, ...] = (
    PythonBuilder(),
    TritonBuilder(),
    CppBuilder("cuda"),
    CppBuilder("cpp"),
    CppBuilder("cutlass"),
    PythonBuilder("tilelang", "tilelang"),
    PythonBuilder("cutedsl", "cutlass", "nvidia-cutlass-dsl"),
    PythonBuilder("cutile", "cuda.tile", "cuda-tile"),
)


def builder_for(language: str) -> Builder | None:
    """Return the builder that answers to `language`, or `None`."""
    name = canonical(language)
    return next((builder for builder in BUILDERS if name in builder.languages), None)


def load(request: Request, folder: Path) -> Kernel:
    """Write the sources into `folder`, build them and check the entry function's signature.

    Runs in the worker: whatever the sources do at import they do to this process. Raises `BuildError`.
    """
    builder = builder_for(request["language"])
    if builder is None:
        known = ", ".join(name for each in BUILDERS for name in each.languages)
        raise BuildError(f"language {request['language']!r} is not known; one of: {known}")
    reason = builder.unavailable(request["device"])
    if reason is not None:
        raise BuildError(reason)
    write_sources(request["sources"], folder)
    if request["cache"]:
        # What a Python source compiles by itself is kept too; torch tells contents apart only by the folder.
        os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(request["cache"]).resolve() / "torch" / digest(request))
    function = builder.build(request, folder)
    by_destination, module = request["destination_passing"], request["module"]
    check_signature(function, request["inputs"], request["outputs"], destination_passing=by_destination, module=module)
    return Kernel(function, canonical(request["language"]))
