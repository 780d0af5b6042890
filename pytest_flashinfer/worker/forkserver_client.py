"""The judge's end of the fork-server: starts it, asks it for workers, hears of their ends."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker import environment
from pytest_flashinfer.worker.errors import WorkerDied
from pytest_flashinfer.worker.processes import standstill
from pytest_flashinfer.worker.processor_time import ProcessorTime, processor_time
from pytest_flashinfer.worker.protocol import FROM_WORKER, Channel, Disconnected, Message, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

_PACKAGE = Path(__file__).resolve().parents[1]
# The package is found by its own path and not by a folder on sys.path, which may be the root of a project.
_BOOT = """
import sys, importlib.util as util
spec = util.spec_from_file_location("pytest_flashinfer", sys.argv[1] + "/__init__.py",
                                    submodule_search_locations=[sys.argv[1]])
sys.modules["pytest_flashinfer"] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from pytest_flashinfer.worker.forkserver import main
main(int(sys.argv[2]))
"""
_PRELOAD = ["torch", "triton", "pytest_flashinfer.worker.child", "pytest_flashinfer.worker.solve"]
START_SECONDS = 180.0  # a cold import of torch from a network disk
_KILL_SECONDS = 20.0  # a process in the middle of a driver call ends late


class Nursery:
    """One fork-server process. Starting does not wait; the first `fork` waits until torch is imported there."""

    def __init__(self, device: str, extra_env: Iterable[str] = ()) -> None:
        self.env = environment.scrub(os.environ, extra_env)
        self.env.update(environment.visible_device(os.environ, device))
        self.events: dict[int, Message] = {}  # number of a worker to how it ended
        self.search: list[str] | None = None  # the server's sys.path, once it is ready
        self.failed: dict[str, str] = {}
        self.gone = False
        self._forking: set[int] = set()  # numbers of workers that were asked for and have no pid yet
        self._pids: dict[int, int] = {}
        self._alive: dict[int, tuple[int, int]] = {}  # number of a worker to its pid and a pidfd
        self._killed: dict[int, Message] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", *(["-B"] if sys.dont_write_bytecode else []), "-c", _BOOT, str(_PACKAGE)]
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [*command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=self.env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        self.channel = Channel(ours, FROM_WORKER)
        search = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]  # noqa: PTH117
        with contextlib.suppress(Disconnected):
            self.channel.send({"path": search, "preload": _PRELOAD})

    @property
    def ready(self) -> bool:
        """Whether the server is known to have imported torch; waits for nothing."""
        with contextlib.suppress(WorkerDied):
            while self.search is None and not self.gone and select.select([self.channel], [], [], 0)[0]:
                self.pump()
        return self.search is not None

    def wait_ready(self) -> list[str]:
        """Wait until the server has imported torch; returns its `sys.path`. Raises WorkerDied where it cannot."""
        if self.gone:
            raise WorkerDied("the fork-server is gone")
        self._until(lambda: self.search is not None, START_SECONDS)
        if "torch" in self.failed:
            raise WorkerDied(f"the fork-server cannot import torch: {self.failed['torch']}", self.log())
        assert self.search is not None
        return self.search

    def fork(self, number: int, policy: Mapping[str, Any], fds: tuple[int, int]) -> None:
        """Ask for a worker with the given socket and log; does not wait for it."""
        self.wait_ready()
        self._send({"do": "fork", "id": number, "policy": dict(policy), "fds": 2}, fds)
        self._forking.add(number)

    def kill(self, number: int) -> Message:
        """Have a worker and all its descendants killed; returns the report (`how`, `left`). Raises WorkerDied."""
        if number in self.events:
            return self.events[number]
        if self.gone:
            raise WorkerDied("the fork-server is gone")
        self._send({"do": "kill", "id": number})
        self._until(lambda: number in self._killed, _KILL_SECONDS)
        report = self._killed.pop(number)
        return self.events.get(number, report)

    def send_signal(self, number: int, which: signal.Signals) -> None:
        """Send a worker's process a signal; one that has ended is no error."""
        _pid, pidfd = self._alive.get(number, (0, -1))
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, which)

    def processor_time(self, number: int) -> ProcessorTime:
        """Read a worker's processor time; zeros where it has ended, or the system does not tell."""
        pid, _pidfd = self._alive.get(number, (0, -1))
        return processor_time(pid) if pid else ProcessorTime()

    def has_ended(self, number: int) -> bool:
        """Whether a worker is known to have ended; waits for nothing. Raises WorkerDied where the server is gone."""
        while number not in self.events and select.select([self.channel], [], [], 0)[0]:
            self.pump()
        return number in self.events

    def stopped(self, number: int) -> AbstractContextManager[None]:
        """Have a worker with all that it started stand still; one that has ended is no error.

        Waits until every worker that was asked for is known, or it could be taken for a process that a worker left.
        """
        with contextlib.suppress(WorkerDied):
            self._until(lambda: not self._forking, _KILL_SECONDS)
            return standstill(self._pids.get(number, 0), self.process.pid, self._pids.values())
        return contextlib.nullcontext()

    def pump(self) -> None:
        """Take in what the server has sent; raises WorkerDied where it is gone."""
        try:
            self.channel.feed()
            while (message := self.channel.take()) is not None:
                self._note(message)
        except (Disconnected, ProtocolError) as error:
            self._abandon()
            raise WorkerDied(f"the fork-server is gone ({self._end()}): {error}", self.log()) from None

    def log(self) -> str:
        """Return what the server itself printed, its last 16 KiB."""
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), 16384, max(0, size - 16384)).decode(errors="replace")

    def close(self) -> None:
        """End the server; it takes its workers along."""
        self.channel.sock.close()
        self._abandon()
        try:  # before it has said that torch is imported it does not look, and has nobody to take along
            self.process.wait(timeout=0.0 if self.search is None else 2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def _note(self, message: Message) -> None:
        event = message.get("event")
        if event == "ready":
            self.failed = dict(message["failed"])
            self.search = [str(path) for path in message["path"]]
            return
        number = int(message["id"])
        if event == "started":
            pid = self._pids[number] = int(message["pid"])
            self._forking.discard(number)
            with contextlib.suppress(OSError):  # it may have ended, and been reaped, already
                self._alive[number] = pid, os.pidfd_open(pid)
            return
        self._pids.pop(number, None)
        self._forking.discard(number)
        _pid, pidfd = self._alive.pop(number, (0, -1))
        if pidfd >= 0:
            os.close(pidfd)
        (self.events if event == "exited" else self._killed)[number] = message

    def _abandon(self) -> None:
        """Kill the workers of a server that is gone: they should have died with it, unless they saw to it."""
        self.gone = True
        self._pids.clear()
        for pid, pidfd in self._alive.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)
            os.close(pidfd)
        self._alive.clear()

    def _until(self, done: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            while not done():
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise WorkerDied(f"the fork-server did not answer within {seconds:g} s", self.log())
                self.pump()

    def _send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        try:
            self.channel.send(message, fds, timeout=_KILL_SECONDS)
        except (Disconnected, TimeoutError) as error:
            self._abandon()
            raise WorkerDied(f"the fork-server is gone ({self._end()}): {error}", self.log()) from None

    def _end(self) -> str:
        status = self.process.poll()
        return "alive" if status is None else f"exit status {status}"
