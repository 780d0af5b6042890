"""A request that a worker is at, while the judge does something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.worker.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.worker.protocol import Message


class Begun:
    """Has one reply, or the error that came in its place, for whoever asks, however often; `wait` waits for it."""

    def __init__(self, wait: Callable[[], Message]) -> None:
        self._wait = wait
        self._end: Message | WorkerError | None = None

    def reply(self) -> Message:
        """Return it. Raises the errors of errors.py."""
        if self._end is None:
            try:
                self._end = self._wait()
            except WorkerError as error:
                self._end = error
        if isinstance(self._end, WorkerError):
            raise self._end
        return self._end
