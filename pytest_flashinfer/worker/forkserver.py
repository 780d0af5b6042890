"""The process that workers are forked from: torch is imported here once, and nothing of any run is known here.

It runs no torch operation and never touches CUDA, so that a fork is sound. It gets a worker's socket and log from the
judge, forks, reports pids and exit statuses, kills and reaps. It ends when the judge does: the control socket closes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import sys
import time

from pytest_flashinfer.data.raised import told
from pytest_flashinfer.worker import processes, sandbox
from pytest_flashinfer.worker.protocol import FROM_JUDGE, Channel, Disconnected, Message

_SWEEP_SECONDS = 1.0  # how long leftovers that keep forking are chased
_EMPTY_LISTINGS = 2
_EXIT_BROKEN = 70  # the child could not even start; its log says why


def main(fd: int) -> None:
    """Serve the judge on the socket `fd` until it closes."""
    sandbox.hide_process()
    sandbox.adopt_orphans()
    channel = Channel(socket.socket(fileno=fd), FROM_JUDGE)
    first, _ = channel.receive()
    sys.path += [path for path in first["path"] if path not in sys.path]
    gc.disable()  # nearly all that torch makes while it is imported stays: looking for the rest is a tenth of the time
    failed = _preload(first["preload"])
    channel.send({"event": "ready", "path": sys.path, "failed": failed})
    gc.freeze()  # collections in a worker leave these pages shared; nobody waits for a search for garbage now either
    gc.enable()
    with contextlib.suppress(Disconnected):
        Server(channel).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the judge waits: to take torch apart would be most of a second


def _preload(modules: list[str]) -> dict[str, str]:
    failed = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001, PERF203 - reported: a broken triton must not stop torch kernels
            failed[name] = told(error)[:500]
    return failed


class Server:
    """The loop: requests from the judge, deaths from the kernel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.workers: dict[int, int] = {}  # pid to the judge's number
        self.ended: dict[int, int] = {}  # pid to status, of workers that are not reported yet
        self.folders: set[str] = set()  # private folders, which the judge removes unless it is killed
        self.wake, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.selector.register(channel, selectors.EVENT_READ)
        self.judge = os.getppid()

    def serve(self) -> None:
        """Run until the judge is gone, then take every worker along."""
        try:
            while os.getppid() == self.judge:
                ready = {key.fileobj for key, _ in self.selector.select(timeout=2.0)}
                if self.wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake, 512)
                    self.reap()
                if self.channel in ready:
                    self.handle(*self.channel.receive(max_fds=2))
                    while self.channel.pending:  # what came in the same piece
                        self.handle(*self.channel.receive(max_fds=2))
        finally:
            processes.kill(processes.descendants(os.getpid(), processes.table()))
            for folder in self.folders:
                shutil.rmtree(folder, ignore_errors=True)

    def handle(self, message: Message, fds: list[int]) -> None:
        """Carry out one request of the judge."""
        if message["do"] == "fork":
            self.fork(message, fds)
        elif message["do"] == "kill":
            self.end(int(message["id"]))

    def fork(self, message: Message, fds: list[int]) -> None:
        """Fork a worker; the parent keeps none of its descriptors."""
        pid = os.fork()
        if pid == 0:
            self._become_worker(message, fds)
        for fd in fds:
            os.close(fd)
        self.workers[pid] = int(message["id"])
        self.folders.add(message["policy"]["private"])
        self.channel.send({"event": "started", "id": message["id"], "pid": pid})

    def _become_worker(self, message: Message, fds: list[int]) -> None:
        try:
            signal.set_wakeup_fd(-1)
            self.selector.close()
            self.channel.sock.close()
            from pytest_flashinfer.worker import child

            child.main(fds[0], fds[1], message["policy"])
        finally:
            os._exit(_EXIT_BROKEN)

    def reap(self) -> None:
        """Report every worker that ended by itself, after killing what it left behind."""
        self._collect()
        self._report(self._sweep() if self.ended else 0)

    def end(self, number: int) -> None:
        """Kill a worker with all that descends from it, wait for its end and report it."""
        pid = next((pid for pid, known in self.workers.items() if known == number), None)
        if pid is None:
            self.channel.send({"event": "killed", "id": number, "how": "", "left": 0})
            return
        processes.kill([pid, *processes.descendants(pid, processes.table())])
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self.ended[pid] = os.waitpid(pid, 0)[1]
        self._report(self._sweep(), pid)

    def _collect(self) -> int:
        """Note the workers that ended; returns how many others did, orphans that this process adopted."""
        others = 0
        with contextlib.suppress(ChildProcessError):
            while (result := os.waitpid(-1, os.WNOHANG))[0]:
                if result[0] in self.workers:
                    self.ended[result[0]] = result[1]
                else:
                    others += 1
        return others

    def _sweep(self) -> int:
        """Kill orphans until none is left; returns how many outlived `_SWEEP_SECONDS`.

        A process that forks and exits all the time slips through a listing, but leaves an orphan that ended: there
        must be none of those between two empty listings either.
        """
        deadline = time.monotonic() + _SWEEP_SECONDS
        empty = 0
        while True:
            rows = {pid: row for pid, row in processes.table().items() if row.state != "Z"}
            left = processes.orphans(os.getpid(), self.workers.keys() - self.ended.keys(), rows)
            empty = 0 if self._collect() or left else empty + 1
            if empty == _EMPTY_LISTINGS or time.monotonic() > deadline:
                return len(left)
            processes.kill(left)

    def _report(self, left: int, killed: int = 0) -> None:
        """Tell the judge of all that ended; `killed` is the one whose end it asked for."""
        for pid, status in self.ended.items():
            event, how = "killed" if pid == killed else "exited", processes.describe(status)
            self.channel.send({"event": event, "id": self.workers.pop(pid), "how": how, "left": left})
        self.ended.clear()
