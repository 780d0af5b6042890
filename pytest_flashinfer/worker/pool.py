"""The workers of one test run on one device: one is always warm, so that the next solution need not wait."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker import allowed
from pytest_flashinfer.worker.builds import Build, Builds
from pytest_flashinfer.worker.card_sharing import Turns
from pytest_flashinfer.worker.client import Worker
from pytest_flashinfer.worker.errors import WorkerDied, WorkerError
from pytest_flashinfer.worker.forkserver_client import Nursery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_flashinfer.worker.arena import InputPieces

SOLVE = "pytest_flashinfer.worker.solve"
_RETRY_SECONDS = (0.1, 0.5, 2.0)


class Pool:
    """Hands out fresh workers; one fork-server behind them.

    `device` is `"cpu"` or `"cuda:N"`. `hidden` are folders and files that no worker may read. `cache` is the folder
    under which build folders live; a worker may write to it until it is told which part of it is its own. `env` names
    further environment variables that workers may see (`NAME` or `PREFIX*`). `turns` are those of this process on the
    device. Constructing a pool starts the import of torch in the fork-server and returns at once.
    """

    def __init__(  # noqa: PLR0913 - all but one have defaults
        self,
        device: str,
        hidden: Iterable[Path] = (),
        cache: Path | None = None,
        env: Iterable[str] = (),
        *,
        network: bool = False,
        turns: Turns | None = None,
    ) -> None:
        self.device = device
        self.hidden = [Path(path) for path in hidden]
        self.cache = cache
        self.env = list(env)
        self.network = network
        self.turns = turns or Turns(device)
        self._numbers = itertools.count(1)
        self._workers: list[Worker] = []
        self._warm: dict[str, Worker] = {}
        self._due: set[str] = set()  # handlers of workers to be prepared next
        self._nursery = Nursery(device, self.env)
        self.builds = Builds()

    @cached_property
    def inputs(self) -> InputPieces:
        """Where all solutions find their inputs in a card, and the reference that is timed beside them."""
        from pytest_flashinfer.worker.arena import InputPieces

        return InputPieces()

    def worker(self, handler: str = SOLVE, *, successor: bool = True) -> Worker:
        """Return a worker with the handler module imported; with `successor`, begin to prepare the next one like it.

        That one waits for others which are being prepared: it is not needed as soon as they are, and a card makes one
        context after the other. Raises WorkerDied where no worker can be started.
        """
        worker = self._warm.pop(handler, None)
        if worker is None or not worker.alive or _not_ready(worker) is not None:
            worker = self._fork(handler)
            if (why := _not_ready(worker)) is not None:
                raise WorkerDied(f"no process can be made ready on {self.device}: {why.detail}", why.log) from why
        if successor:
            self._due.add(handler)
        if not any(other.preparing for other in self._warm.values()):
            while self._due:
                self.warm(self._due.pop())
        return worker

    def warm(self, handler: str = SOLVE) -> None:
        """Begin to prepare a worker with `handler`; waits for the fork-server only."""
        if handler not in self._warm:
            self._warm[handler] = self._fork(handler)

    def begin(self, handler: str, meanwhile: Callable[[], object]) -> None:
        """Have the first solution's process and one with `handler` get ready for the card at the same time.

        `meanwhile` is done while they do, or, where they cannot be started yet, while the fork-server imports torch.
        """
        waiting = not self._nursery.ready
        if waiting:
            meanwhile()
        with contextlib.suppress(WorkerDied):  # whoever needs one says so
            self.warm()
            self.warm(handler)
        if not waiting:
            meanwhile()

    def quiet(self) -> None:
        """Wait until nothing is being prepared, so that no other process uses the card during a measurement.

        On the CPU, where the wall clock is read, builds ahead are waited for too.
        """
        if self.device == "cpu":
            self.builds.wait()
        for handler, worker in list(self._warm.items()):
            if worker.alive and _not_ready(worker) is not None:  # whoever needs one has another made
                del self._warm[handler]

    def build_ahead(self, request: Mapping[str, Any], folder: Path, seconds: float) -> None:
        """Begin to build what `request` describes in `folder`, for the cache only. Raises WorkerDied or OSError."""
        policy = self._policy()
        with _removed_on_failure(policy["private"]):
            build = Build(self._nursery, next(self._numbers), policy, SOLVE, request, folder, seconds)
        self.builds.running.append(build)

    def protections(self) -> dict[str, Any]:
        """Return what the sandbox achieves here; needs no solution."""
        self.warm()
        worker = self._warm[SOLVE]
        worker.start()
        return dict(worker.protections or {})

    def close(self) -> None:
        """Kill every worker and the fork-server."""
        self.builds.close()
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._warm.clear()
        self._nursery.close()
        if "inputs" in vars(self):
            self.inputs.shrink(0)

    def _fork(self, handler: str) -> Worker:
        try:
            return self._fork_once(handler)
        except WorkerDied:
            with contextlib.suppress(OSError):
                self._nursery.close()
            self._warm.clear()
            self._nursery = self._another()
            return self._fork_once(handler)

    def _another(self) -> Nursery:
        """Start another fork-server; a machine that is short of processes or memory may have some in a moment."""
        for seconds in _RETRY_SECONDS:
            with contextlib.suppress(OSError):
                return Nursery(self.device, self.env)
            time.sleep(seconds)
        try:
            return Nursery(self.device, self.env)
        except OSError as error:
            raise WorkerDied(f"no fork-server can be started: {error}") from error

    def _fork_once(self, handler: str) -> Worker:
        policy = self._policy()
        with _removed_on_failure(policy["private"]):
            worker = Worker(self._nursery, next(self._numbers), policy, handler, self.device)
        self._workers = [known for known in self._workers if known.end != "closed"]
        self._workers.append(worker)
        return worker

    def _policy(self) -> dict[str, Any]:
        search = self._nursery.wait_ready()
        # What other processes built and wrote, references among it, may lie below a place that all may read.
        hidden = [*self.hidden, Path(tempfile.gettempdir())]
        if self.cache is not None:
            self.cache.mkdir(parents=True, exist_ok=True)
            hidden.append(self.cache)
        return {
            "private": _private_folder(),
            "read": allowed.readable(search, self._nursery.env, hidden),
            "write": [str(self.cache)] if self.cache is not None else [],
            "devices": allowed.devices(),
            "network": self.network,
        }


def _not_ready(worker: Worker) -> WorkerError | None:
    """Wait until a worker is warm; return why it will never be, and end it."""
    try:
        worker.start()
    except WorkerError as error:
        worker.close()
        return error
    return None


@contextlib.contextmanager
def _removed_on_failure(folder: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # nobody else knows of it
        raise


def _private_folder() -> str:
    """Make the folder that a worker has for itself: working directory, home and temporary files."""
    folder = tempfile.mkdtemp(prefix="fib-")
    os.chmod(folder, 0o700)  # noqa: PTH101 - mkdtemp's own promise, kept under any umask
    return folder
