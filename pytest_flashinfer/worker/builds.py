"""Builds ahead: solutions built in workers of their own, whose answers nobody reads. What they leave is the cache.

Such a worker is confined as every other one, builds in the solution's own folder and ends. The build that counts comes
later, finds there what is compiled, and says what there is to say; where both meet, the cache's lock has one wait.
No CUDA context is opened: a measurement may be going on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker.errors import WorkerDied
from pytest_flashinfer.worker.protocol import FROM_WORKER, Channel, Disconnected

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.worker.forkserver_client import Nursery

_POLL_SECONDS = 0.02


class Build:
    """One build that is going on, for at most `seconds`."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a worker is made of
        self,
        nursery: Nursery,
        number: int,
        policy: Mapping[str, Any],
        handler: str,
        request: Mapping[str, Any],
        folder: Path,
        seconds: float,
    ) -> None:
        self.nursery = nursery
        self.number = number
        self.private = policy["private"]
        self.deadline = time.monotonic() + seconds
        folder.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        log = os.open(os.devnull, os.O_WRONLY)  # a pipe that nobody empties would stop it
        self.channel = Channel(ours, FROM_WORKER)
        try:
            with theirs:
                nursery.fork(number, policy, (theirs.fileno(), log))
        finally:
            os.close(log)
        with contextlib.suppress(Disconnected):
            self._say({"do": "start", "handler": handler, "device": "cpu"})
            self._say({"do": "build", "request": dict(request), "folder": str(folder)})
            ours.shutdown(socket.SHUT_WR)  # there is nothing more to do: it ends

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(TimeoutError):
            self.channel.send({"id": secrets.randbits(53), **message}, timeout=1.0)

    def ended(self) -> bool:
        """Whether it is over; one that takes too long is ended now."""
        try:
            over = self.nursery.has_ended(self.number)
        except WorkerDied:
            over = True
        if over or time.monotonic() > self.deadline:
            self.close()
            return True
        return False

    def close(self) -> None:
        """Kill what is left of it."""
        with contextlib.suppress(WorkerDied):
            self.nursery.kill(self.number)
        self.channel.sock.close()
        shutil.rmtree(self.private, ignore_errors=True)


class Builds:
    """The builds that are going on."""

    def __init__(self) -> None:
        self.running: list[Build] = []

    def tend(self) -> int:
        """Drop what is over; returns how many are going on."""
        self.running = [build for build in self.running if not build.ended()]
        return len(self.running)

    def wait(self) -> None:
        """Wait until none is going on: a wall clock would measure them as well."""
        while self.tend():
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End all."""
        for build in self.running:
            build.close()
        self.running.clear()
