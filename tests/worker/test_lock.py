"""One process at a time holds a card's lock; it goes with its holder, and waiting has an end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from pytest_flashinfer.worker import lock
from pytest_flashinfer.worker.lock import LockedOut, card_lock

HOLD = """
import sys, time
from pathlib import Path
from pytest_flashinfer.worker.lock import card_lock
with card_lock("GPU-1", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_free_card_is_taken_at_once(tmp_path):
    for _ in range(2):
        with card_lock("GPU-1", tmp_path) as waited:
            assert waited < 0.5


def test_who_waits_too_long_is_told_who_holds_it(tmp_path, other):
    words = f"GPU-1 was not free for 0.05 s: process {other.pid} uses it"
    with pytest.raises(LockedOut, match=words), card_lock("GPU-1", tmp_path, most=0.05):
        pytest.fail("two hold it")
    with card_lock("GPU-2", tmp_path):
        pass  # another card is free


def test_a_killed_holder_holds_nothing(tmp_path, other):
    threading.Timer(0.2, other.kill).start()
    with card_lock("GPU-1", tmp_path, most=20) as waited:
        assert waited > 0.1


def test_an_error_in_the_body_frees_the_card(tmp_path):
    with pytest.raises(ZeroDivisionError), card_lock("GPU-1", tmp_path):
        _ = 1 / 0
    with card_lock("GPU-1", tmp_path, most=0):
        pass


def test_a_link_in_the_shared_folder_is_not_followed(tmp_path):
    with card_lock("GPU-1", tmp_path):
        (path,) = tmp_path.iterdir()
    target = tmp_path / "mine"
    target.write_text("precious")
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(LockedOut, match="cannot be opened"), card_lock("GPU-1", tmp_path):
        pass
    assert target.read_text() == "precious"


def test_the_folder_is_for_all_users(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_EVERYBODYS", tmp_path)
    umask = os.umask(0o077)
    try:
        with card_lock("GPU-1"):
            folder = lock.shared_folder()
            (path,) = folder.iterdir()
    finally:
        os.umask(umask)
    assert (folder.stat().st_mode & 0o7777, path.stat().st_mode & 0o777) == (0o1777, 0o666)


def test_without_a_folder_for_all_each_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_EVERYBODYS", tmp_path / "none")
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    assert lock.shared_folder() == tmp_path / "pytest-flashinfer-locks"


def test_a_folder_that_cannot_be_made_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_EVERYBODYS", tmp_path / "none")
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    with pytest.raises(LockedOut, match="pytest-flashinfer-locks cannot be opened: No such file"), card_lock("GPU-1"):
        pass
