"""A cache of compiled extensions: one folder per content, built once, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.build.base import write_sources
from pytest_flashinfer.build.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_flashinfer.build.base import Request

_FLAGS = frozenset({"CC", "CXX", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS"})  # that compilers read
_CUTLASS_VERSION = "cutlass/version.h"
_LAYOUT = 2  # raise it when what is built from the same request changes
_ERROR = re.compile(
    r"^(?:ptxas |nvcc )?(?P<where>[^\s:(]+(?::\d+(?::\d+)?|\(\d+\)))?:?\s*(?:fatal )?error\s*:?\s+(?P<what>.+)$"
)
_LINK_ERROR = re.compile(r"undefined reference to|multiple definition of|cannot find -l")


def digest(request: Request, *facts: Any, include: Iterable[str] = ()) -> str:
    """Return the name of the content: the sources, the entry, this interpreter, its compilers, and `facts` (versions).

    `include`: folders of headers that are used beside the request's own.
    """
    cuda = any(source["path"].endswith(".cu") for source in request["sources"])
    compilers = [_stamp(shutil.which(os.environ.get("CXX") or "c++")), _stamp(find_nvcc() if cuda else None)]
    flags = sorted((name, value) for name, value in os.environ.items() if name in _FLAGS or name.startswith("NVCC_"))
    headers = [(folder, _stamp(f"{folder}/{_CUTLASS_VERSION}")) for folder in include]
    what = [_LAYOUT, sys.implementation.cache_tag, compilers, flags, headers, *facts]
    what += [request["language"], request["binding"], request["entry_file"], request["entry_function"]]
    what += sorted((source["path"], source["content"]) for source in request["sources"])
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]


def _stamp(path: str | None) -> list[Any]:
    """Return what changes when a file is replaced; empty where there is none."""
    try:
        found = Path(path).resolve() if path else None
        status = found.stat() if found else None
    except OSError:
        return []
    return [str(found), status.st_size, status.st_mtime_ns] if status else []


def build_once(request: Request, key: str, compile_in: Callable[[Path, Path], Path]) -> Path:
    """Return the compiled library of the content `key`, building it under a lock if no earlier process did.

    `compile_in(sources, out)` compiles the files that lie in `sources` and returns the library, a file in `out`.
    A build that was killed leaves no mark and is repeated.
    """
    folder = Path(request["cache"]).resolve() / "extensions" / key
    mark = folder / "library"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if mark.is_file() and (folder / mark.read_text()).is_file():
            return folder / mark.read_text()
        shutil.rmtree(folder, ignore_errors=True)
        sources, out = folder / "src", folder / "out"
        write_sources(request["sources"], sources)
        out.mkdir(parents=True)
        library = compile_in(sources, out)
        unfinished = mark.with_suffix(".tmp")
        unfinished.write_text(str(library.relative_to(folder)))
        unfinished.replace(mark)
        return library


def compiler_failure(text: str, sources: Path) -> BuildError:
    """Turn a compiler's output into an error whose one line holds the first faults; the log holds all of it."""
    log = text.replace(f"{sources}/", "")
    faults = []
    for line in log.splitlines():
        match = _ERROR.match(line.strip())
        if match and not match["what"].startswith("ld returned"):
            faults.append(f"{match['where'] or ''} error: {match['what']}".strip())
        elif _LINK_ERROR.search(line):
            faults.append(line.strip())
    faults = list(dict.fromkeys(faults))
    if not faults:
        lines = [line for line in log.splitlines() if line.strip() and not line.startswith("ninja: build stopped")]
        faults = lines[-1:] or ["no output"]
    more = f" (and {len(faults) - 2} more)" if len(faults) > 2 else ""  # noqa: PLR2004 - two fit on one line
    return BuildError(f"does not compile: {'; '.join(faults[:2])}{more}", log)


@contextlib.contextmanager
def tools_on_path() -> Iterator[None]:
    """Put the interpreter's own scripts on PATH: ninja lies there also when the environment is not activated."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([before, sysconfig.get_path("scripts")])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def find_tool(*names: str) -> str | None:
    """Return the first of the programs `names` found on PATH or beside the interpreter, or `None`."""
    with tools_on_path():
        return next((found for found in map(shutil.which, names) if found), None)


def find_nvcc() -> str | None:
    """Return nvcc from CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda, or `None`."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    beside = [os.path.join(home, "bin", "nvcc") for home in [*homes, "/usr/local/cuda"]]  # noqa: PTH118 - strings
    places = [*beside[:-1], shutil.which("nvcc"), beside[-1]]
    return next((path for path in places if path and os.access(path, os.X_OK)), None)


def card_arch(device: str) -> str | None:
    """Return the architecture to compile for, as `"9.0a"`, or `None` to leave the choice to the compiler's caller.

    From capability 9.0 on the `a` form is taken: it alone has the card's tensor-core instructions (`wgmma`,
    `tcgen05`), and what is built here runs on this card only. TORCH_CUDA_ARCH_LIST overrides it.
    """
    if device == "cpu":
        return None
    if os.environ.get("TORCH_CUDA_ARCH_LIST"):
        return os.environ["TORCH_CUDA_ARCH_LIST"]
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    if f"sm_{major}{minor}" not in torch.cuda.get_arch_list():
        return None
    return f"{major}.{minor}{'a' if major >= 9 else ''}"  # noqa: PLR2004 - Hopper brought the suffix


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the kernel drops when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
