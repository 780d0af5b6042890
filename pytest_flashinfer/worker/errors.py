"""What can go wrong with a worker, as the judge sees it."""

from __future__ import annotations

from pytest_flashinfer.worker import stacks


class WorkerError(Exception):
    """A worker did not do what it was asked.

    `kind` is a short word for tables, `detail` one line, `log` what the worker printed and, where there is one, the
    traceback or the compiler's output.
    """

    kind = "worker"

    def __init__(self, detail: str, log: str = "", kind: str | None = None) -> None:
        self.detail = detail
        self.log = log
        if kind is not None:
            self.kind = kind
        super().__init__(detail)


class BuildFailed(WorkerError):  # noqa: N818 - reads as what happened
    """The solution did not compile or import, or its signature does not fit; `traceback` holds the details."""

    kind = "build"

    def __init__(self, message: str, traceback: str = "", log: str = "") -> None:
        self.message = message
        self.traceback = traceback
        super().__init__(message, log)


class CallFailed(WorkerError):  # noqa: N818 - reads as what happened
    """The call raised; the worker lives on. `message` is the exception in one line, `traceback` the whole of it."""

    kind = "exception"

    def __init__(self, kind: str, message: str, traceback: str = "", log: str = "") -> None:
        self.message = message
        self.traceback = traceback
        super().__init__(message, log, kind)


class WorkerDied(WorkerError):  # noqa: N818 - reads as what happened
    """The process is gone, or said what no worker says. `how`: `exit status 0`, `signal SIGSEGV`, `CUDA error: ...`.

    `traceback`: where it crashed, by its own word.
    """

    kind = "died"

    def __init__(self, how: str, log: str = "") -> None:
        self.how = how
        log, self.traceback = stacks.split(log)
        super().__init__(f"the worker died: {how}", log)


class WorkerTimedOut(WorkerError):  # noqa: N818 - reads as what happened
    """No answer in time; the process was killed. `seconds` is the limit, `traceback` where it was, by its own word."""

    kind = "timeout"

    def __init__(self, seconds: float, log: str = "") -> None:
        self.seconds = seconds
        log, self.traceback = stacks.split(log)
        super().__init__(f"no answer within {seconds:g} s; the worker was killed", log)
