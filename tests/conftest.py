"""Shared by all tests: pytester, and where the GPU tests run.

pytest loads this module in every run that starts in the repository's root, for folders of that name are looked into:
what is only for tests happens when the first of them starts.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]
# By these CI is known: pytest cuts no message there, and hypothesis keeps no failures. Some tests set them.
CI = ("CI", "BUILD_NUMBER", "BUILDKITE", "CIRCLECI", "CIRRUS_CI", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD")
# The runs inside of tests are not those whose log and summary people read.
GITHUB = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE")
settings.register_profile("patient", deadline=None, max_examples=50)  # a first example may load parts of torch
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _by_themselves() -> Iterator[None]:
    """Have the runs inside of tests be no parts of the one that the tests are run by."""
    spread = [name for name in os.environ if name.startswith("PYTEST_XDIST_")]
    with pytest.MonkeyPatch.context() as patch:
        for name in (*CI, *GITHUB, *spread):
            patch.delenv(name, raising=False)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell starts in the background
            signal.signal(signal.SIGINT, signal.default_int_handler)  # the runs inside of tests are interrupted by it
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect GPU tests where there is no card: an item that cannot run anywhere here says nothing."""
    if shutil.which("nvidia-smi"):
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
