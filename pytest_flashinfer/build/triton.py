"""Triton solutions: Python files whose kernels Triton compiles for the card, or interprets on the CPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.build.interpreter import repair
from pytest_flashinfer.build.python import PythonBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_flashinfer.build.base import Request


class TritonBuilder(PythonBuilder):
    """Imports the entry file once Triton's interpreter is known to be on, and to round rightly, where there is no card.

    `@triton.jit` reads its kernel's source with `inspect`, which works because the sources are real files.
    """

    def __init__(self) -> None:
        super().__init__("triton", "triton")

    def build(self, request: Request, folder: Path) -> Callable[..., Any]:
        """Import the entry file and return its entry function. Raises BuildError."""
        # Triton reads the variable once, when it is first imported: setting it here could be too late.
        if request["device"] == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise BuildError("Triton on the CPU needs TRITON_INTERPRET=1 in the environment before triton is imported")
        if request["device"] == "cpu":
            repair()
        return super().build(request, folder)
