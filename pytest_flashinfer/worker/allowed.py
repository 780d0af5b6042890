"""Which folders a worker may read: what Python, torch and compilers need, less what is hidden from solutions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/sys", "/nix", "/var/lib/dpkg")
_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CPATH", "LIBRARY_PATH", "TRITON_PTXAS_PATH")
_MAX_CHILDREN = 2000  # of one folder that holds a hidden one; a larger folder is given up as a whole
_DEVICE_FILES = ("null", "zero", "full", "random", "urandom", "shm", "dri", "infiniband", "kfd", "nvidia-caps")


def readable(search: Iterable[str], environ: Mapping[str, str], hidden: Iterable[Path]) -> list[str]:
    """Return the paths that a worker may read and execute.

    `search` is its `sys.path`, `environ` its environment, `hidden` what must stay out. An allowed folder that
    contains a hidden one is replaced by its other children; one that lies inside a hidden folder stays allowed, so
    that a virtual environment below a hidden project root works.
    """
    package = Path(__file__).resolve().parents[1]
    prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    # A checkout of this package, on sys.path for an editable install, holds definitions and solutions as well.
    checkout = package.parent if (package.parent / "pyproject.toml").exists() else None
    wanted = [*search, *_SYSTEM, "/proc", *prefixes, str(package), *_editable()]
    wanted += [part for name in _VARIABLES for part in environ.get(name, "").split(os.pathsep)]
    secret = {path.resolve() for path in hidden} | ({checkout} if checkout is not None else set())
    around = {parent for path in secret for parent in path.parents}
    roots = {Path(path).resolve() for path in wanted if os.path.isabs(path) and os.path.exists(path)}  # noqa: PTH117, PTH110
    return sorted({str(path) for root in roots if root != root.parent for path in _without(root, secret, around)})


def _without(root: Path, secret: set[Path], around: set[Path]) -> Iterator[Path]:
    """Yield `root`, or, where it lies `around` something secret, those of its children that hold nothing secret."""
    if root in secret:
        return
    if root not in around:
        yield root
        return
    try:
        children = sorted(root.iterdir())
    except OSError:
        return
    if len(children) > _MAX_CHILDREN:
        return
    for child in children:
        if not child.is_symlink():
            yield from _without(child, secret, around)


def _editable() -> Iterator[str]:
    """Folders of packages in development, which setuptools serves from an import hook instead of `sys.path`."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            for target in dict(getattr(module, "MAPPING", {})).values():
                yield str(target)


def devices() -> list[str]:
    """Return the device files of a worker: no disks, no terminals, no kernel memory."""
    names = [f"/dev/{name}" for name in _DEVICE_FILES]
    return names + [str(path) for path in Path("/dev").glob("nvidia*")]
