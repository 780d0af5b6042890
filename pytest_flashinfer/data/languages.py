"""The languages of solutions, and the other names under which they are found."""

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
