"""A solution under test: what the `solution` fixture returns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flashinfer.judge.verdict import decide
from pytest_flashinfer.solution_call import Call, Failed
from pytest_flashinfer.worker.errors import BuildFailed, CallFailed, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from contextlib import AbstractContextManager

    from pytest_flashinfer.data.model import Solution
    from pytest_flashinfer.run.progress import Progress
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.kernel import Kernel
    from pytest_flashinfer.worker.outcome import Compilation
    from pytest_flashinfer.worker.runner import Cache, RunResult


class UnderTest:
    """Calls one solution in its own process; `log` is what it printed since it was last taken.

    `took` holds, by the uuid of a listed workload, how long the shortest call on it took, in seconds; `called` those on
    which the process that lives was called; `waited` for how many seconds all calls were waited for; `compiled` what
    Triton compiled in them, in order.
    `mutated`: the inputs that the reference turns out to write into, so that this solution may.
    """

    def __init__(self, kernel: Kernel, progress: Progress | None = None, mutated: Collection[str] = ()) -> None:
        self.kernel = kernel
        self.progress = progress
        self.mutated = mutated
        self.log = ""
        self.took: dict[str, float] = {}
        self.called: set[str] = set()
        self.waited = 0.0
        self.compiled: list[Compilation] = []

    @property
    def solution(self) -> Solution:
        """The solution as it was read."""
        return self.kernel.solution

    @property
    def writes_inputs(self) -> bool:
        """Whether a call changes inputs, as far as is known."""
        return bool(self.kernel.written)

    def run(
        self,
        cases: Iterable[Case],
        *,
        cache: Cache | None = None,
        warm: Case | None = None,
        answered: Callable[[Case], object] | None = None,
    ) -> list[Call]:
        """Call once for each case, all of one shape, in this order and on the same storage.

        With `cache` the calls are timed, with `warm` after a number of calls on that case whose results do not matter.
        `answered` is told of each case once it has been.

        A call that raised, crashed or hung ends the list and carries its error. Raises Failed where the solution
        does not build.
        """
        todo = list(cases)
        calls: list[Call] = []
        try:
            self._build()
            for result in self.kernel.calls(todo, cache=cache, warm=warm):
                case = todo[len(calls)]
                calls.append(Call(case, result, mutated=self.mutated))
                if answered is not None:
                    answered(case)
                self._note(case, result)
        except BuildFailed as error:
            raise Failed(decide(error=error), log=error.log, built=False) from error
        except WorkerError as error:
            self.log += error.log
            if self.kernel.build_failed:
                raise Failed(decide(error=error), log=error.log, built=False) from error
            if not isinstance(error, CallFailed):
                self.took.clear()
                self.called.clear()  # the next process has to load and compile anew
            done = calls[: len(todo) - 1]
            return [*done, Call(todo[len(done)], error=error)]
        return calls

    def _note(self, case: Case, result: RunResult) -> None:
        self.log += result.log
        self.compiled += result.compiled
        self.waited += result.round_trip
        if case.workload is not None:
            uuid = case.workload.uuid
            self.took[uuid] = min(result.round_trip, self.took.get(uuid, math.inf))
            self.called.add(uuid)

    def _build(self) -> None:
        """Have the solution built where it is not; compilers take their time, and somebody may be waiting."""
        if self.progress is not None and not self.kernel.built:
            with self.progress.doing(f"building {self.solution.name}"):
                self.kernel.build()

    def take_log(self) -> str:
        """Return what was printed, and forget it."""
        log, self.log = self.log, ""
        return log

    def paused(self) -> AbstractContextManager[None]:
        """Have the process stand still while something else is timed."""
        return self.kernel.paused()

    def close(self) -> None:
        """End the process; the next call starts another."""
        self.kernel.close()
        self.called.clear()
