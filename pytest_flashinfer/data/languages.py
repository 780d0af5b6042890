"""The languages of solutions, the other names under which they are found, and how entry points are misspelt."""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "c++": "cpp", "cxx": "cpp", "cute_dsl": "cutedsl", "cute-dsl": "cutedsl", "pytorch": "python", "torch": "python",
    "tlx": "triton", "cudnn_frontend": "python", "cuda_cpp": "cuda", "cublas": "cuda", "cudnn": "cuda",
}  # fmt: skip


def canonical(language: str) -> str:
    """Give the canonical name of a language as files spell it (`"CUDA"`, `"c++"`); an unknown one in lower case."""
    lowered = language.strip().lower()
    return _NAMES.get(lowered, lowered)


def one_colon(entry: str) -> str | None:
    """Say how an entry point is written that has one colon in the middle, as Python's own have; `None` for others."""
    file, colon, function = entry.partition(":")
    if not colon or not file.strip() or ":" in function:
        return None
    return f"{entry!r} has one colon: write {file.strip()}::{function.strip() or '<function>'}"
