"""Shared by all tests: pytester, and where the GPU tests run."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(name, None)  # the runs inside of tests are not those whose log and summary people read
for name in ("CI", "BUILD_NUMBER", "BUILDKITE", "CIRCLECI", "CIRRUS_CI", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD"):
    os.environ.pop(name, None)  # pytest cuts no message there, and hypothesis keeps no failures: some tests set it
for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
    del os.environ[name]  # nor are they parts of the run that these tests may be spread over
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the runs inside of tests are interrupted by it
settings.register_profile("patient", deadline=None, max_examples=50)  # a first example may load parts of torch
settings.load_profile("patient")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect GPU tests where there is no card: an item that cannot run anywhere here says nothing."""
    if shutil.which("nvidia-smi"):
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
