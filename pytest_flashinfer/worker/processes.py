"""The process table, read from /proc: who descends from whom, so that a worker's end is the end of all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LISTINGS = 100  # of the process table, while a tree that forks is being stopped
_SETTLING = 1e-3  # seconds between two of them


@dataclass(frozen=True)
class Process:
    """One row of the table; `session` is the id of the session leader."""

    pid: int
    parent: int
    session: int
    state: str


def table() -> dict[int, Process]:
    """Return all processes by id; those that end meanwhile are left out."""
    rows: dict[int, Process] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - one call, no objects
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - hundreds, at each kill
                    text = file.read()
                fields = text[text.rindex(b")") + 2 :].split()
                rows[int(name)] = Process(int(name), int(fields[1]), int(fields[3]), fields[0].decode())
    return rows


def descendants(root: int, rows: dict[int, Process]) -> list[int]:
    """Return the ids of all processes below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row.pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def orphans(parent: int, living: Iterable[int], rows: dict[int, Process]) -> list[int]:
    """Return the children of `parent` that belong to no worker in `living`, with all that descends from them.

    A worker leads its own session, so what it leaves behind is told from what another one still uses.
    """
    leaders = set(living)
    mine = [
        row.pid
        for row in rows.values()
        if row.parent == parent and row.pid not in leaders and row.session not in leaders
    ]
    return mine + [pid for root in mine for pid in descendants(root, rows)]


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each; one that is gone already is no error."""
    _signal(pids, signal.SIGKILL)


@contextlib.contextmanager
def standstill(leader: int, server: int, living: Iterable[int]) -> Iterator[None]:
    """Stop `leader` and all that descends from it while the body runs; 0 stands for one that is gone.

    What was left to the fork-server `server` is stopped as well, but none of the other workers in `living`, which are
    all that there are, with what is theirs.
    """
    stopped: dict[int, None] = {}
    others = {*living} - {leader}
    try:
        for _ in range(_LISTINGS):
            rows = table()
            known = leader in rows and rows[leader].parent == server  # not 0, whose are all, nor somebody's used pid
            own = [leader, *descendants(leader, rows)] if known else []
            found = dict.fromkeys((*own, *orphans(server, others, rows)))
            new = [pid for pid in found if pid not in stopped and rows[pid].state != "Z"]
            if not new and all(rows[pid].state in "TtZ" for pid in stopped if pid in rows):
                break
            stopped.update(dict.fromkeys(new))
            _signal(new, signal.SIGSTOP)
            time.sleep(_SETTLING)
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each; one that is gone, or belongs to somebody else by now, is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def describe(status: int) -> str:
    """Say how a process ended, from the status that waitpid gave: `exit status 0`, `signal SIGSEGV`."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
