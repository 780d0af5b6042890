"""Floor build: from a solution's sources to a callable, one file per language; knows nothing of judging.

`load` runs in the worker. `requirements` runs in the judge and says beforehand what cannot run here. Importing either
loads no torch, no triton and no compiler.
"""

from pytest_flashinfer.build.base import Kernel, Request
from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.build.registry import load

__all__ = ["BuildError", "Kernel", "Request", "load"]
