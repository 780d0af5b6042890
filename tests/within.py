"""Runs of pytest within this process: each start of one imports torch, and so does its fork-server.

pytester forgets the modules that an inner run imported, and neither torch nor the plugin's own state survives being
imported twice, so they are loaded here, before the first run. All runs of the folders whose conftest.py imports the
fixtures of this module have one fork-server.
"""

from __future__ import annotations

import gc
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

from pytest_flashinfer import collect, fixtures, judging  # noqa: F401
from pytest_flashinfer.cases import making  # noqa: F401
from pytest_flashinfer.run import session  # noqa: F401
from pytest_flashinfer.search import minimal_case, size_search  # noqa: F401
from pytest_flashinfer.timing import timed_calls  # noqa: F401
from pytest_flashinfer.worker import kernel, pool  # noqa: F401
from pytest_flashinfer.worker.forkserver_client import Nursery

gc.collect()
gc.freeze()  # pytest collects garbage at the end of each run, five times: in these modules it need not look


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


@pytest.fixture(scope="package", autouse=True)
def failures_by_folder():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(size_search, "hypothesis", SimpleNamespace(settings=SimpleNamespace(default=ByFolder())))
        yield


@pytest.fixture(scope="package", autouse=True)
def one_fork_server(fork_servers):
    """Tests of other folders, which may come between those of this one, have the real pool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Nursery", living_server)
        patch.setattr(pool, "Pool", Shared)
        yield


@pytest.fixture(scope="session")
def fork_servers():
    yield
    for server in Shared.servers.values():
        server.close()
    Shared.servers.clear()
