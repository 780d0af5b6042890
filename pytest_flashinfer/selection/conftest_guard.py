"""Strangers' code stays out of the judge's process: pytest would import every conftest.py and test_*.py it passes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConftestGuard:
    """Has pytest pass by the folders of solutions, unless one holds definitions or the folder that pytest started in.

    Those are to be collected. The root folder says nothing: without an ini file it is where an argument lies. Paths are
    compared as they are once links are followed.
    """

    def __init__(self, solutions: Iterable[Path], definitions: Iterable[Path], invocation_dir: Path) -> None:
        wanted = [path.resolve() for path in (*definitions, invocation_dir)]
        places = {path.resolve() for path in solutions}
        self._places = {place for place in places if not any(path.is_relative_to(place) for path in wanted)}

    def refuse(self, config: pytest.Config) -> None:
        """End the run where an argument lies in a folder of solutions: pytest would not ask whether to pass it by."""
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            return
        for arg in config.args:
            place = config.invocation_params.dir / str(arg).partition("::")[0]
            if place.exists() and self._is_theirs(place):
                why = "lies in a folder of --fib-solutions, whose code is for the sandbox and not for pytest itself"
                raise pytest.UsageError(f"{arg}: {why}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Pass by a file or folder in a folder of solutions, before a conftest.py there is loaded."""
        return True if self._is_theirs(collection_path) else None

    def _is_theirs(self, path: Path) -> bool:
        real = Path(os.path.realpath(path))
        return not self._places.isdisjoint((real, *real.parents))
