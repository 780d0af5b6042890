"""However a run ends, no process of it and no folder of a worker stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_flashinfer.worker.processes import descendants, table

HANGS = """
import os, time

def run(x, w):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    with open("/proc/self/comm", "w") as name:
        name.write("fib-hangs")
    time.sleep(600)
"""


def comm(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it ended meanwhile
        return ""


def until(done, seconds):
    limit = time.monotonic() + seconds
    while not done() and time.monotonic() < limit:
        time.sleep(0.1)
    return done()


def living(pids):
    rows = table()
    return [pid for pid in pids if pid in rows and rows[pid].state != "Z"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_run_that_is_cut_short_in_a_hanging_kernel(repository, end):
    """Ctrl-C gives the run time to clean up; where SIGKILL gives it none, its processes see that it is gone."""
    repository.solve("good", HANGS)
    private = repository.root / "tmp"
    private.mkdir()
    command = [sys.executable, "-m", "pytest", "--fib-solutions=solutions", "--fib-device=cpu", "-k", "test_correct"]
    with (repository.root / "output.txt").open("w+") as output:
        run = subprocess.Popen(
            command,
            cwd=repository.root,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(private)},
        )
        hanging = until(lambda: "fib-hangs" in map(comm, descendants(run.pid, table())), 60)
        below = descendants(run.pid, table())
        os.kill(run.pid, end)
        code = run.wait(timeout=30)
        output.seek(0)
        text = output.read()
    assert hanging, text
    assert len(below) > 3, "a fork-server, workers and the kernel's own process"
    assert until(lambda: not living(below), 10), [comm(pid) for pid in living(below)]
    assert until(lambda: not list(private.glob("fib-*")), 5)
    if end == signal.SIGINT:
        assert code == pytest.ExitCode.INTERRUPTED
        assert "KeyboardInterrupt" in text
    else:
        assert code == -signal.SIGKILL
