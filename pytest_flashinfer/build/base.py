"""What every language has in common: the request, the result, the `Builder` protocol and the files on disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.data.languages import one_colon

if TYPE_CHECKING:
    from collections.abc import Callable


class Source(TypedDict):
    """One source file; `path` is relative to the solution's folder."""

    path: str
    content: str


class Request(TypedDict):
    """What the judge sends to have a solution built; plain JSON values, no objects.

    `inputs` and `outputs` are the definition's tensor names in order. `module` says that the author wrote one Python
    file and nothing besides, so that advice is given in its terms. `device` is `"cpu"` or `"cuda:0"`. `cache` is a
    folder that outlives the worker, where compiled extensions are kept by content.
    """

    language: str
    binding: str | None
    entry_file: str
    entry_function: str
    sources: list[Source]
    destination_passing: bool
    module: bool
    inputs: list[str]
    outputs: list[str]
    device: str
    cache: str


@dataclass(frozen=True)
class Kernel:
    """A solution that is ready to be called: `function(*inputs)`, or `function(*inputs, *outputs)`."""

    function: Callable[..., Any]
    language: str


class Builder(Protocol):
    """Turns the sources of the languages that it names into a callable."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The canonical names that this builder answers to."""

    def unavailable(self, device: str) -> str | None:
        """Why nothing in these languages can run on `device` (`"cpu"` or `"cuda..."`) here, or `None`."""

    def build(self, request: Request, folder: Path) -> Callable[..., Any]:
        """Return the entry function, from sources that already lie in `folder`; raises `BuildError`."""


def write_sources(sources: list[Source], folder: Path) -> None:
    """Write every source under `folder`; a path that would leave it raises `BuildError`.

    The reader of the solution checks paths too; this is the place where a file would really be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    for source in sources:
        path = PurePosixPath(source["path"])
        target = (root / path).resolve()
        if path.is_absolute() or ".." in path.parts or root not in target.parents:
            raise BuildError(f"source path {source['path']!r} leaves the solution's folder; make it relative to it")
        try:
            _write(target, source["content"].encode())
        except (OSError, ValueError) as error:
            raise BuildError(f"source {source['path']!r} cannot be written: {error}") from error


def _write(target: Path, content: bytes) -> None:
    """Write in one step: another worker may be importing the same file of the same solution."""
    if target.is_file() and target.read_bytes() == content:
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)  # by an earlier run of the solution, which may write here
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(target)


def entry_path(request: Request, folder: Path) -> Path:
    """Return the entry file in `folder`; raises `BuildError` naming the sources where there is no such file."""
    path = folder.resolve() / request["entry_file"]
    if not path.is_file():
        names = ", ".join(source["path"] for source in request["sources"]) or "there are none"
        unknown = f"entry file {request['entry_file']!r} is not among the sources: {names}"
        raise BuildError(one_colon(request["entry_file"]) or unknown)
    return path
