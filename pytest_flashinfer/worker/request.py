"""What a worker is asked to build, and where. Without torch: the fork-server is started before the judge imports it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition, Solution


SOLUTIONS, REFERENCES = "solutions", "references"  # the parts of the cache


def cache_folder() -> Path:
    """Return the folder under which compiled kernels outlive a run: `$XDG_CACHE_HOME/pytest-flashinfer`.

    A relative path is no place, says the XDG Base Directory Specification: processes lie in folders of their own.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", "")).expanduser()
    return (given if given.is_absolute() else Path("~/.cache").expanduser()) / "pytest-flashinfer"


def make_cache() -> None:
    """Make the parts of the cache, once in a run: without them no solution can be built, whoever wrote it.

    Raises OSError, or RuntimeError where this user has no home, if that cannot be done or nothing can be written there.
    """
    for part in (SOLUTIONS, REFERENCES):
        folder = cache_folder() / part
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def solution_folder(solution: Solution) -> Path:
    """Return the one folder in which a solution is built, and which alone its processes may write to."""
    return cache_folder() / SOLUTIONS / solution.digest[:32]


def build_request(definition: Definition, solution: Solution, device: str, folder: Path) -> dict[str, Any]:
    """Return what a worker needs to build `solution`: its sources and the names of the tensors, nothing else."""
    return {
        "language": solution.language,
        "binding": solution.binding,
        "entry_file": solution.entry_file,
        "entry_function": solution.entry_function,
        "sources": [{"path": source.path, "content": source.content} for source in solution.sources],
        "destination_passing": solution.destination_passing,
        "module": solution.module,
        "inputs": list(definition.inputs),
        "outputs": [name for name in definition.outputs if name not in inplace_of(definition)],
        "device": "cpu" if device == "cpu" else "cuda:0",
        "cache": str(folder),
    }


def inplace_of(definition: Definition) -> dict[str, str]:
    """Return the outputs that are written back into an input, with that input: no call is given them again."""
    params = {name: spec.param for name, spec in definition.outputs.items() if spec.param is not None}
    return {name: param for name, param in params.items() if param in definition.inputs}
