"""Languages and bindings of solutions, the other names that are found for them, and how entry points are misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final = {
    "c++": "cpp", "cxx": "cpp", "cute_dsl": "cutedsl", "cute-dsl": "cutedsl", "pytorch": "python", "torch": "python",
    "tlx": "triton", "cudnn_frontend": "python", "cuda_cpp": "cuda", "cublas": "cuda", "cudnn": "cuda",
}  # fmt: skip
_BINDINGS: Final = {"tvm_ffi": "tvm-ffi", "tvmffi": "tvm-ffi"}


def canonical(language: str) -> str:
    """Give the canonical name of a language as files spell it (`"CUDA"`, `"c++"`); an unknown one in lower case."""
    return _settled(language, _NAMES)


def canonical_binding(binding: str) -> str:
    """Give the canonical name of a binding as files spell it (`"tvm_ffi"`); an unknown one in lower case."""
    return _settled(binding, _BINDINGS)


def _settled(name: str, others: Mapping[str, str]) -> str:
    lowered = name.strip().lower()
    return others.get(lowered, lowered)


def one_colon(entry: str) -> str | None:
    """Say how an entry point is written that has one colon in the middle, as Python's own have; `None` for others."""
    file, colon, function = entry.partition(":")
    if not colon or not file.strip() or ":" in function:
        return None
    return f"{entry!r} has one colon: write {file.strip()}::{function.strip() or '<function>'}"
