"""A small data set for every test of the plugin.

Most runs happen in this process (`pytester`). pytester forgets the modules that an inner run imported, and neither
torch nor the plugin's own state survives being imported twice, so they are loaded here, before the first run.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, ClassVar

import hypothesis.strategies  # noqa: F401
import jsonschema  # noqa: F401
import numpy as np  # noqa: F401
import pytest
import torch  # noqa: F401
from hypothesis.database import InMemoryExampleDatabase

from pytest_flashinfer import collect, fixtures, judging, making, search, searching, session, timing  # noqa: F401
from pytest_flashinfer.worker import kernel, pool  # noqa: F401
from pytest_flashinfer.worker.nursery import Nursery

from .repository import QUICK, Repository


class Shared(pool.Pool):
    """A pool whose fork-server is that of all runs within this process: each start of one imports torch."""

    servers: ClassVar[dict[str, Nursery]] = {}
    numbers = itertools.count(1)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._numbers = self.numbers

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._warm.clear()


def living_server(device: str, *arguments: Any) -> Nursery:
    server = Shared.servers.get(device)
    if server is None or server.gone:
        server = Shared.servers[device] = Nursery(device, *arguments)
    return server


class ByFolder:
    """Hypothesis' settings for runs within this process: each folder has a database of its own, as on disk."""

    folders: ClassVar[dict[str, InMemoryExampleDatabase]] = defaultdict(InMemoryExampleDatabase)

    @property
    def database(self) -> InMemoryExampleDatabase:
        return self.folders[os.getcwd()]  # noqa: PTH109 - a key


@pytest.fixture(scope="session", autouse=True)
def _failures_of_one_folder_are_not_those_of_another():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "hypothesis", SimpleNamespace(settings=SimpleNamespace(default=ByFolder())))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_fork_server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Nursery", living_server)
        patch.setattr(pool, "Pool", Shared)
        yield
    for server in Shared.servers.values():
        server.close()
    Shared.servers.clear()


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    """A definition with one workload and one right solution, in pytester's folder."""
    made = Repository(pytester.path)
    made.define()
    made.sizes(4)
    made.solve()
    return made


@pytest.fixture
def kernels(pytester: pytest.Pytester, repository: Repository):
    """Run pytest over the data set within this process; returns pytester's result."""

    def run(*options: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("--fib-solutions=solutions", *QUICK, *options)

    assert repository.root == pytester.path
    return run


@pytest.fixture
def collected(kernels):
    """Return the node ids that a run would execute."""

    def node_ids(*options: str) -> list[str]:
        result = kernels("--collect-only", "-q", *options)
        return [line for line in result.outlines if "::" in line]

    return node_ids


@pytest.fixture
def two(repository):
    """Two definitions of different kinds, the second with a tag, with solutions of two authors."""
    repository.define(name="shift_h8", op_type="other", tags=["status:verified", "model:tiny"])
    repository.sizes(4, 9, name="shift_h8", folder="other")
    repository.solve("fast", of="shift_h8", author="ada", language="triton")
    return repository
