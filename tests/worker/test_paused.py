"""While something else is timed, a solution's process stands still, with all that it started."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_flashinfer.worker import processes
from pytest_flashinfer.worker.runner import Output

if TYPE_CHECKING:
    from pathlib import Path

Y = Output("y", (4, 8), torch.float32)

BURN = """
import os, threading, time
def burn(name):
    with open(name, "w") as file:
        while True:
            file.seek(0)
            file.write(str(time.monotonic_ns()))
            file.flush()
"""
BURNERS = {
    "thread": "threading.Thread(target=burn, args=('mark',), daemon=True).start()",
    "child": "if os.fork() == 0: burn('mark')",
    "session": "if os.fork() == 0: os.setsid(); burn('mark')",
    "orphan": "if os.fork() == 0:\n    if os.fork() == 0: os.setsid(); burn('mark')\n    os._exit(0)\nos.wait()",
}
RUN = "\ndef run(x, y):\n    y.copy_(x * 2)\n"


def moves(mark: Path) -> bool:
    """Whether somebody writes to a file."""
    before, end = mark.read_text() if mark.exists() else "", time.monotonic() + 5
    while time.monotonic() < end:
        if mark.exists() and mark.read_text() not in ("", before):
            return True
    return False


@pytest.mark.parametrize("name", BURNERS)
def test_whatever_burns_the_machine_stands_still(lab, name):
    runner = lab.build(f"{BURN}{BURNERS[name]}{RUN}")
    mark = runner.worker.private / "mark"
    assert moves(mark)
    with runner.worker.paused():
        time.sleep(0.05)  # each thread stops by itself
        before = mark.read_text()
        time.sleep(0.1)
        assert mark.read_text() == before
        other = lab.run("def run(x, y):\n    y.copy_(x)\n")  # the reference's process, started meanwhile
        assert not other.violations
    assert moves(mark)
    assert not lab.run("def run(x, y):\n    y.copy_(x)\n").violations


def test_the_worker_goes_on_afterwards_also_after_an_error(lab):
    runner = lab.build(BURN + RUN)
    with pytest.raises(ZeroDivisionError), runner.worker.paused():
        raise ZeroDivisionError
    assert not runner.run({"x": lab.randn(4, 8)}, [Y]).violations


def test_a_worker_that_stands_still_can_be_killed(lab):
    runner = lab.build(f"{BURN}{BURNERS['session']}{RUN}")
    with runner.worker.paused():
        runner.worker.close()
    assert runner.worker.left == 0
    with runner.worker.paused():  # of one that is gone
        pass


def test_nobody_else_is_stopped(lab):
    runners = [lab.build(BURN + RUN) for _ in range(2)]
    with runners[0].worker.paused():
        assert not runners[1].run({"x": lab.randn(4, 8)}, [Y]).violations


@pytest.mark.parametrize("leader", [0, 1, 1 << 30, os.getpid()], ids=["none", "init", "gone", "this"])
def test_one_that_is_gone_takes_nobody_along(monkeypatch, leader):
    sent = []
    monkeypatch.setattr(processes, "_signal", lambda pids, number: sent.extend(pids))
    with processes.standstill(leader, 1 << 30, [os.getpid()]):
        assert sent == []
    assert sent == []
