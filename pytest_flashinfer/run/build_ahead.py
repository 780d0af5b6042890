"""`--fib-build-jobs`: what has to be compiled is built ahead, in parallel, while earlier items run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.collect import DefinitionFile
from pytest_flashinfer.data.languages import canonical
from pytest_flashinfer.worker.errors import WorkerDied
from pytest_flashinfer.worker.request import build_request, solution_folder

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Solution
    from pytest_flashinfer.outputs.run_files import Records
    from pytest_flashinfer.run.session import FibSession

Key = tuple[DefinitionFile, str]  # a solution of a definition
COMPILED = ("cuda", "cpp", "cutlass")  # Triton compiles when a kernel is called, with the inputs that it is called with


class BuildAhead:
    """Keeps up to `jobs` builds going on; a new one begins when an item does."""

    def __init__(self, session: FibSession, records: Records) -> None:
        self.session = session
        self.records = records
        self.jobs = session.options.build_jobs
        self.waiting: dict[Key, Solution] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """List the solutions that items will ask for, in their order."""
        keys = dict.fromkeys(_key(item) for item in session.items if not self.records.is_held(item))
        for key in keys:
            if key is not None:
                solution = key[0].solutions[key[1]].solution
                if canonical(solution.language) in COMPILED and self.session.why_not(solution) is None:
                    self.waiting[key] = solution

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin builds where there is room; what this item builds itself need not be built ahead."""
        if not self.waiting:
            return
        self.waiting.pop(_key(item), None)  # type: ignore[arg-type]  # of an item without a solution it is None
        pool = self.session.pool
        while self.waiting and pool.builds.tend() < self.jobs:
            file, name = key = next(iter(self.waiting))
            solution = self.waiting.pop(key)
            assert file.definition is not None, name
            folder = solution_folder(solution)
            request = build_request(file.definition, solution, pool.device, folder)
            try:
                pool.build_ahead(request, folder, self.session.options.build_timeout)
            except (WorkerDied, OSError):  # the items of this solution say what is wrong, if anything is
                self.waiting.clear()

    def pytest_sessionfinish(self) -> None:
        """End what goes on: nobody will ask for it."""
        self.waiting.clear()
        self.session.pool.builds.close()


def _key(item: pytest.Item) -> Key | None:
    file = item.getparent(DefinitionFile)
    name = getattr(getattr(item, "callspec", None), "params", {}).get("solution")
    return None if file is None or name is None else (file, str(name))
