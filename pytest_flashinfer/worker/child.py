"""The main loop of a worker: does what the judge asks, through a handler module, until it is killed.

A handler is a module with

    build(request: dict, folder: Path, device: str) -> object      what calls need, kept here between calls
    call(kernel: object, request: dict, memory: Memory) -> dict    one request; plain values are returned
    warm(device: str) -> None                                      optional: done ahead, before anything foreign is here

`request` holds the judge's plain JSON values. Tensors travel through `memory`, see memory.py. Whatever `build` or
`call` raises, SystemExit included, becomes an error reply; an attribute `kind` of the exception names the error.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_flashinfer.data.raised import traced
from pytest_flashinfer.worker import cudart, sandbox, stacks
from pytest_flashinfer.worker.memory import MOST_PIECES, Memory
from pytest_flashinfer.worker.protocol import FROM_JUDGE, SOON, Channel, Disconnected, Message

if TYPE_CHECKING:
    from types import ModuleType

_OURS = "pytest_flashinfer."  # modules whose exceptions speak for themselves
_LONGEST = 16_000  # characters of a traceback or message that travel
EXIT_DEVICE = 71  # the device context is beyond repair; the last reply says why


def main(sock: int, log: int, policy: dict[str, Any]) -> NoReturn:
    """Serve the judge on `sock`, with stdout and stderr in `log`; never returns."""
    try:
        _redirect(log)
        stacks.tell(2)
        confinement = sandbox.Policy.from_message(policy)
        protections = sandbox.enter(confinement, [sock])
        Worker(Channel(socket.socket(fileno=sock), FROM_JUDGE), confinement, protections).serve()
    except BaseException:  # noqa: BLE001 - the end of the process; the log is all that can be told
        traceback.print_exc()
        sys.stderr.flush()
        stacks.end(1)
    stacks.end(0)


def _redirect(log: int) -> None:
    """Have what is printed go to the log at once, as with `python -u`.

    To flush a stream would be to call what foreign code may have put in its place, after the clock.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for name, fd in (("stdout", 1), ("stderr", 2)):
        file = open(fd, "wb", buffering=0, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(file, encoding="utf-8", errors="replace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class Worker:
    """What this process holds between requests."""

    def __init__(self, channel: Channel, policy: sandbox.Policy, protections: dict[str, Any]) -> None:
        self.channel = channel
        self.policy = policy
        self.protections = protections
        self.device = "cpu"
        self.handler: ModuleType | None = None
        self.kernel: object = None
        self.memory = Memory()
        self.host = Memory()  # a second block, of the host's memory, where the first is a card's
        self._flush_c = ctypes.CDLL(None).fflush

    def serve(self) -> None:
        """Answer requests until the judge hangs up."""
        while True:
            try:
                message, fds = self.channel.receive(max_fds=MOST_PIECES, soon=SOON if self.device != "cpu" else 0.0)
            except Disconnected:
                return
            reply, last = self._answer(message, fds)
            self._flush_c(None)  # what C code printed is in the log before the judge reads it
            self.channel.send({"id": message["id"], **reply})
            if last:
                stacks.end(EXIT_DEVICE)

    def _answer(self, message: Message, fds: list[int]) -> tuple[Message, bool]:
        try:
            return {"ok": getattr(self, f"do_{message['do']}")(message, fds)}, False
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything; all of it is reported
            lost = self.device != "cpu" and cudart.lost()
            failure = _failure(error)
            if lost:
                failure["error"].update(kind="device", message=lost)
            return failure, bool(lost)

    def do_start(self, message: Message, _fds: list[int]) -> Message:
        """Import the handler and have it warm up; the protections in force are the answer."""
        self.device = message["device"]
        self.handler = importlib.import_module(message["handler"])
        warm = getattr(self.handler, "warm", None)
        if warm is not None:
            warm(self.device)
        return self.protections

    def do_build(self, message: Message, _fds: list[int]) -> Message:
        """Give up every folder but this request's, then build."""
        folder = Path(message["folder"])
        narrowed = sandbox.Policy(
            self.policy.private, [*self.policy.read], [str(folder)], self.policy.devices, self.policy.network
        )
        sandbox.confine(narrowed)
        sandbox.use_caches(str(folder), self.policy.private)
        assert self.handler is not None
        self.kernel = self.handler.build(message["request"], folder, self.device)
        return {}

    def do_map(self, message: Message, fds: list[int]) -> Message:
        """Map the judge's arena in place of the last one of its kind."""
        self._memory(host=message["host"]).map(message, fds)
        return {}

    def do_unmap(self, _message: Message, _fds: list[int]) -> Message:
        """Let go of the arena, which the judge is about to free."""
        self.memory.unmap()
        return {}

    def do_call(self, message: Message, _fds: list[int]) -> Message:
        """Pass a request to the handler; what it wrote into the arena is there when the answer leaves."""
        assert self.handler is not None
        request = message["request"]
        host = bool(request.get("host"))
        result: Message = self.handler.call(self.kernel, request, self._memory(host=host))
        if self.device != "cpu" and not host:
            cudart.synchronize()
        return result

    def _memory(self, *, host: bool) -> Memory:
        return self.host if host and self.device != "cpu" else self.memory


def _failure(error: BaseException) -> Message:
    """Describe an exception: in its own words if it is one of this package, else it may itself be hostile."""
    if str(type(error).__module__).startswith(_OURS):
        kind, message = str(getattr(error, "kind", "exception")), str(getattr(error, "message", ""))
        log = str(getattr(error, "log", ""))
    else:
        kind = message = log = ""
    text, words = "", type(error).__name__
    try:
        text = traced(error, error.__traceback__)
        said = str(error)
        words += f": {said}" if said else ""
    except BaseException:  # noqa: BLE001, S110 - its __str__ raised, or something else of its own: what there is is told
        pass
    message, log = message or words, log or text
    return {"error": {"kind": kind or "exception", "message": message[:_LONGEST], "traceback": log[-_LONGEST:]}}
