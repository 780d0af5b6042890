"""The process that has a definition's reference: started when first asked, and anew where it has died."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from pytest_flashinfer.data.reference_rules import DUMP
from pytest_flashinfer.judge.oracle.client import HANDLER, Oracle
from pytest_flashinfer.judge.reference import other_code_client
from pytest_flashinfer.judge.reference.origin import UNSTEADY, NoReference, ReferenceFailed, Unsteady, source_of
from pytest_flashinfer.worker.errors import BuildFailed, WorkerDied, WorkerError, WorkerTimedOut
from pytest_flashinfer.worker.request import REFERENCES, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.judge.oracle.mutated_inputs import MutatedInputs
    from pytest_flashinfer.worker.pool import Pool

T = TypeVar("T")
HUNG = "the reference is not asked again: it gave no answer in time"


class ReferenceProcess:
    """Has an oracle asked. `timeout` in seconds is for loading the reference; one that cannot be is not tried again.

    One that has hung is not asked of cases as large again, and of none where it had answered nothing: each would hang.
    """

    def __init__(self, pool: Pool, definition: Definition, timeout: float, mutated: MutatedInputs) -> None:
        self.pool = pool
        self.definition = definition
        self.timeout = timeout
        self.mutated = mutated  # outlives the process
        self._oracle: Oracle | None = None
        self._broken: BuildFailed | None = None
        self._answered = False
        self._least = math.inf  # bytes of the smallest case on which it hung; 0 where it is asked of none
        self.hung = ""  # why it is asked of no case any more

    @property
    def running(self) -> Oracle | None:
        """The oracle, where its process lives."""
        return self._oracle if self._oracle is not None and self._oracle.worker.alive else None

    def ask(self, question: Callable[[Oracle], T], *, nbytes: int | None = None) -> T:
        """Return what a question gives. Raises ReferenceFailed, also for the errors of the worker.

        A question about a case runs the reference, on inputs of `nbytes`; without, the rest of the definition's code
        will do.
        """
        if self.hung or (nbytes is not None and nbytes >= self._least):
            raise ReferenceFailed(self.hung or f"{HUNG} on inputs of {self._least:,} bytes, and these are as large")
        self.pool.turns.give_way()
        try:
            found = question(self._live(needed=nbytes is not None))
        except WorkerTimedOut as error:
            self.close()
            self._note_hang(nbytes)
            limit = "--fib-reference-timeout gives it more"
            raise ReferenceFailed(f"the reference's process: {error.detail}; {limit}") from error
        except WorkerDied as error:
            self.close()
            raise ReferenceFailed(f"the reference's process: {error.detail}") from error
        except WorkerError as error:
            absent = error.kind == "absent" and self.definition.form == DUMP
            kind = NoReference if absent else Unsteady if error.kind == UNSTEADY else ReferenceFailed
            raise kind(error.detail) from error
        self._answered = self._answered or nbytes is not None
        return found

    def _note_hang(self, nbytes: int | None) -> None:
        if not self._answered:
            self.hung = f"{HUNG} when it was first asked"
        elif nbytes is not None:
            self._least = nbytes

    def close(self) -> None:
        """End the process; the next question starts another."""
        if self._oracle is not None:
            self._oracle.close()
            self._oracle.worker.close()
        self._oracle = None

    def _live(self, *, needed: bool) -> Oracle:
        source, entry = source_of(self.definition, needed=needed)
        if self._broken is not None:
            raise self._broken.with_traceback(None)
        if self._oracle is None or not self._oracle.worker.alive:
            self.close()
            self._oracle = Oracle(self.pool.worker(HANDLER), self.pool.device, self.mutated)
            try:
                self._build(self._oracle, source, entry)
            except BuildFailed as error:
                self._broken = error
                self.close()
                raise
        return self._oracle

    def _build(self, oracle: Oracle, source: str, entry: str) -> None:
        oracle.build(
            source,
            cache_folder() / REFERENCES,
            entry=entry,
            style=self.definition.reference_style,
            hooks=other_code_client.describe(self.definition),
            timeout=self.timeout,
        )
