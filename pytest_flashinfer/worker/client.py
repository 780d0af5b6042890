"""The judge's end of one worker: asks, waits with a limit, and says how it ended when it ended."""

from __future__ import annotations

import contextlib
import secrets
import select
import selectors
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker import stacks
from pytest_flashinfer.worker.errors import BuildFailed, CallFailed, WorkerDied, WorkerError, WorkerTimedOut
from pytest_flashinfer.worker.log import Log, printable
from pytest_flashinfer.worker.pending import Begun
from pytest_flashinfer.worker.protocol import FROM_WORKER, SOON, Channel, Disconnected, Message, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flashinfer.worker.forkserver_client import Nursery
    from pytest_flashinfer.worker.processor_time import ProcessorTime
    from pytest_flashinfer.worker.shared import Shared

START_SECONDS = 120.0  # fork, sandbox, handler import, CUDA context
_MAP_SECONDS = 30.0
_GRACE = 2.0  # how long the exit status of a worker that hung up is waited for
_CUT = 16_000
_TWICE = "answered twice, as where a child process of the solution returns as well: have it end by os._exit"
_ORPHANED = "the fork-server is gone"


class Worker:
    """One worker process. Not thread-safe; every method may raise WorkerDied or WorkerTimedOut, after which it is dead.

    `protections` says what the sandbox achieved, once `start` has been waited for.
    """

    def __init__(self, nursery: Nursery, number: int, policy: Mapping[str, Any], handler: str, device: str) -> None:
        self.nursery = nursery
        self.number = number
        self.handler = handler
        self.private = Path(policy["private"])
        self.protections: dict[str, Any] | None = None
        self.end: str | None = None  # how it ended
        self.left = 0  # processes that outlived it
        self._begun: Begun | None = None
        self._answered = 0  # the number of the last question that it answered
        self.device = device
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours, FROM_WORKER)
        self._log = Log()
        with theirs:
            nursery.fork(number, policy, (theirs.fileno(), self._log.write_end))
        self._log.close_write_end()
        seen = "cpu" if device == "cpu" else "cuda:0"  # the only card that a worker sees
        self._starting = self._ask({"do": "start", "handler": handler, "device": seen})

    @property
    def alive(self) -> bool:
        """Whether the process is not known to have ended."""
        if self.end is None and self.number in self.nursery.events:
            report = self.nursery.events[self.number]
            self.end, self.left = str(report["how"]), int(report["left"])
        if self.end is None and self.nursery.gone:
            self.end = _ORPHANED
        return self.end is None

    @property
    def preparing(self) -> bool:
        """Whether it has not said yet that it is warm; waits for nothing."""
        return self.alive and self.protections is None and not select.select([self.channel], [], [], 0)[0]

    def start(self) -> None:
        """Wait until the worker is confined and warm."""
        if self.protections is None:
            self.protections = self._answer(self._starting, START_SECONDS)

    def build(self, request: Mapping[str, Any], folder: Path, timeout: float) -> None:
        """Have the handler build what `request` describes in `folder`; raises BuildFailed."""
        self.start()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.ask({"do": "build", "request": request, "folder": str(folder)}, timeout)
        except CallFailed as error:
            raise BuildFailed(error.message, error.traceback, error.log) from None

    def fit(self, memory: Shared, nbytes: int, front: int = 0) -> None:
        """Have `memory` hold at least `nbytes` behind a front and be mapped here; one that has to grow is a new one."""
        if not memory.holds(nbytes, front):
            self.let_go(memory)
            memory.reserve(nbytes, front)
            message, fds = memory.export()
            self.ask({"do": "map", **message}, _MAP_SECONDS, fds)

    def let_go(self, memory: Shared) -> None:
        """Have a card's memory closed in the worker before it is freed by the judge, as CUDA demands."""
        if memory.device != "cpu" and memory.nbytes:
            self.ask({"do": "unmap"}, _MAP_SECONDS)

    def call(self, request: Mapping[str, Any], timeout: float) -> Message:
        """Pass `request` to the handler and return its reply, untrusted plain values; raises CallFailed."""
        return self.ask({"do": "call", "request": request}, timeout)

    def begin(self, request: Mapping[str, Any], timeout: float) -> Begun:
        """Pass `request` to the handler; its reply is waited for when it is asked for, or when something else is."""
        self.start()
        self.finish()
        number = self._ask({"do": "call", "request": request}, timeout=timeout)
        self._begun = Begun(lambda: self._told(number, timeout))
        return self._begun

    def ask(self, message: Mapping[str, Any], timeout: float, fds: Sequence[int] = ()) -> Message:
        """Send one message and wait for its answer, at most `timeout` seconds."""
        self.start()
        self.finish()
        return self._told(self._ask(message, fds, timeout), timeout)

    def finish(self) -> None:
        """Wait until the worker has done what it was asked to begin; what it reads may be changed then."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with contextlib.suppress(WorkerError):  # whoever asks for the reply is told
                begun.reply()

    def _told(self, number: int, timeout: float) -> Message:
        try:
            return self._answer(number, timeout)
        except WorkerError:
            raise
        except BaseException:  # an interrupt: the answer still to come would be taken for the next one
            self._kill()
            raise

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have the process stand still, with all that it started, so that what else is timed has the machine."""
        with self.nursery.stopped(self.number) if self.alive else contextlib.nullcontext():
            yield

    def processor_time(self) -> ProcessorTime:
        """Read the process's processor time; zeros where that is not known."""
        return self.nursery.processor_time(self.number)

    def take_log(self) -> str:
        """Return what was printed since the last call."""
        return self._log.take()

    def close(self) -> None:
        """Kill the process with all that it started, and remove its private folder."""
        if self.end is None:
            with contextlib.suppress(WorkerDied):
                report = self.nursery.kill(self.number)
                self.left = int(report["left"])
            self.end = "closed"
        self.channel.sock.close()
        self._log.close()
        shutil.rmtree(self.private, ignore_errors=True)

    def _ask(self, message: Mapping[str, Any], fds: Sequence[int] = (), timeout: float = START_SECONDS) -> int:
        if not self.alive:
            raise WorkerDied(self.end or "", self.take_log())
        if self.channel.pending:
            raise self._dies("spoke without being asked: does a child process of the solution return from the call?")
        number = secrets.randbits(53)
        try:
            self.channel.send({"id": number, **message}, fds, timeout)
        except Disconnected:
            raise self._dies("") from None
        except TimeoutError:
            raise self._times_out(timeout) from None
        return number

    def _answer(self, number: int, timeout: float) -> Message:
        reply = self._wait(timeout)
        if reply.get("id") != number:
            twice = reply.get("id") == self._answered
            raise self._dies(_TWICE if twice else "sent garbage: an answer to another question")
        self._answered = number
        error = reply.get("error")
        if isinstance(error, dict):
            kind, message, traceback = (
                printable(str(error.get(key, ""))[:_CUT]) for key in ("kind", "message", "traceback")
            )
            if kind == "device":
                self._kill()
                self.end = message
                raise WorkerDied(message, f"{self.take_log()}\n{traceback}")
            raise CallFailed(kind, message, traceback, self.take_log())
        result = reply.get("ok")
        if not isinstance(result, dict):
            raise self._dies("sent garbage: an answer without content")
        return result

    def _wait(self, timeout: float) -> Message:
        deadline = time.monotonic() + timeout
        try:
            if self.device != "cpu" and (message := self.channel.poll(min(timeout, SOON))) is not None:
                return message
            return self._wait_long(deadline, timeout)
        except ProtocolError as error:
            raise self._dies(f"sent garbage: {error}") from None
        except Disconnected:
            raise self._dies("") from None
        except WorkerDied as error:  # with the fork-server
            self.end = self.end or error.how
            raise

    def _wait_long(self, deadline: float, timeout: float) -> Message:
        with selectors.DefaultSelector() as selector:
            for source in (self.channel, self._log, self.nursery.channel):
                selector.register(source, selectors.EVENT_READ)
            while (message := self.channel.take()) is None:
                if self.number not in self.nursery.events:
                    self._listen(selector, deadline, timeout)
                elif not self.channel.feed():  # not even last words, and some other process holds the socket
                    raise self._dies("")
            return message

    def _listen(self, selector: selectors.BaseSelector, deadline: float, timeout: float) -> None:
        remaining = deadline - time.monotonic()
        ready = {key.fileobj for key, _ in selector.select(max(0.0, remaining))} if remaining > 0 else set()
        if not ready and time.monotonic() >= deadline:
            raise self._times_out(timeout)
        if self._log in ready:
            self._log.feed()
            if self._log.closed:
                selector.unregister(self._log)
        if self.nursery.channel in ready:
            self.nursery.pump()
        if self.channel in ready:
            self.channel.feed()

    def _times_out(self, seconds: float) -> WorkerTimedOut:
        self.nursery.send_signal(self.number, stacks.SIGNAL)  # who has no handler for it any more dies of it
        self._log.settle()
        self._kill()
        return WorkerTimedOut(seconds, self.take_log())

    def _dies(self, why: str) -> WorkerDied:
        """Kill what is left of the worker; the error says `why` and, where the process ended by itself, how."""
        deadline = time.monotonic() + (_GRACE if not why else 0.05)
        while self.number not in self.nursery.events and not self.nursery.gone and time.monotonic() < deadline:
            time.sleep(0.001)
            with contextlib.suppress(WorkerDied):
                self.nursery.pump()
        own = self.nursery.events.get(self.number, {}).get("how", "")
        self._kill()
        how = ", then ended with ".join(filter(None, (why, own))) or "closed its connection to the judge"
        self.end = how
        return WorkerDied(how, self.take_log())

    def _kill(self) -> None:
        with contextlib.suppress(WorkerDied):
            report = self.nursery.kill(self.number)
            self.left = int(report["left"])
            self.end = str(report["how"])
        self.end = self.end or _ORPHANED
