"""A small data set for every test of the plugin; most runs happen in this process (`pytester`)."""

from __future__ import annotations

import pytest

from tests.within import failures_by_folder, fork_servers, one_fork_server  # noqa: F401 - every run here has them

from .repository import QUICK, Repository


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
