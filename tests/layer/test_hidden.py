"""A worker finds its interpreter and its packages wherever the project that is hidden from it lies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_flashinfer.worker.allowed import readable

SITE = Path(__import__("torch").__file__).resolve().parents[1]


def covered(path, allowed):
    return any(Path(each) in (path, *path.parents) for each in allowed)


@pytest.mark.parametrize(
    "root",
    [Path("/"), Path.home(), Path(sys.prefix), Path(sys.prefix).parent, Path("/usr/src/app")],
    ids=["/", "home", "the environment itself", "around the environment", "inside /usr"],
)
def test_packages_stay_readable(root):
    allowed = readable(sys.path, {}, [root])
    for needed in (SITE / "torch/__init__.py", Path(pytest.__file__).resolve(), Path("/usr/bin/env")):
        assert covered(needed, allowed), needed
    assert "/" not in allowed


def test_what_is_hidden_within_an_allowed_folder_is_hidden(tmp_path):
    """Definitions may lie in a folder that is on the search path."""
    for name in ("definitions/a.json", "package/module.py", "package/solutions/b.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    allowed = readable([str(tmp_path)], {}, [tmp_path / "definitions", tmp_path / "package/solutions"])
    assert covered(tmp_path / "package/module.py", allowed)
    assert not covered(tmp_path / "definitions/a.json", allowed)
    assert not covered(tmp_path / "package/solutions/b.json", allowed)
    assert not covered(tmp_path / "new", allowed)


def test_an_environment_within_a_hidden_project_stays_readable(tmp_path):
    packages = tmp_path / ".venv/lib/site-packages"
    packages.mkdir(parents=True)
    allowed = readable([str(packages)], {}, [tmp_path])
    assert covered(packages / "torch", allowed)
    assert not covered(tmp_path / "definitions", allowed)
