"""A solution as the judge calls it: built when first needed, in a process of its own, started anew after a death."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_flashinfer.worker.errors import BuildFailed, WorkerDied, WorkerTimedOut
from pytest_flashinfer.worker.request import build_request, inplace_of, solution_folder
from pytest_flashinfer.worker.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_flashinfer.data.model import Definition, Solution
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.client import Worker
    from pytest_flashinfer.worker.pool import Pool
    from pytest_flashinfer.worker.runner import Cache, RunResult


class Kernel:
    """One solution on one device. `timeout` and `build_timeout` are in seconds, for one call and for building.

    `written` are the inputs that outputs are written back into, and those that a call was seen to change. Methods raise
    the errors of errors.py; a build that failed is not tried again.
    """

    def __init__(
        self,
        pool: Pool,
        definition: Definition,
        solution: Solution,
        *,
        timeout: float = 60.0,
        build_timeout: float = 600.0,
    ) -> None:
        self.pool = pool
        self.solution = solution
        self.timeout = timeout
        self.build_timeout = build_timeout
        self.folder = solution_folder(solution)
        self.request = build_request(definition, solution, pool.device, self.folder)
        self.written = set(inplace_of(definition).values())
        self._worker: Worker | None = None
        self._runner: Runner | None = None
        self._failure: BuildFailed | WorkerDied | WorkerTimedOut | None = None

    def build(self) -> Runner:
        """Return the runner of a live worker, building first where there is none.

        Raises BuildFailed, WorkerDied or WorkerTimedOut, the same one each time.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._runner is not None and self.built:
            return self._runner
        self.close()
        self._worker = self.pool.worker()
        try:
            self._worker.build(self.request, self.folder, self.build_timeout)
        except (BuildFailed, WorkerDied, WorkerTimedOut) as error:
            if not isinstance(error, BuildFailed):
                error.detail += ", while it was built or imported"
            self._failure = error
            self.close()
            raise
        self._runner = Runner(
            self._worker, self.pool.device, self.pool.inputs, destination=self.solution.destination_passing
        )
        return self._runner

    def calls(
        self, cases: Iterable[Case], *, cache: Cache | None = None, warm: Case | None = None
    ) -> Iterator[RunResult]:
        """Call once for each case, all of one shape, on the same storage unless a case is to be moved.

        With `cache` the calls are timed, with `warm` after a number of others on that case; not where a call moves on
        a position: nobody sets it back between those.

        Results are yielded as they come. When all are there, late changes join their violations, and device times
        are filled in.
        """
        runner = self.build()
        if warm is not None and cache is not None and not self._moves_on(warm):
            runner.warm(warm.values, warm.outputs, cache, self.timeout)
        for case in cases:
            self.pool.turns.give_way()
            result = runner.run(case.values, case.outputs, timeout=self.timeout, cache=cache, moved=case.moved)
            self.written |= {each.tensor for each in result.violations if each.kind == "input"}
            yield result
        runner.settle()
        runner.read_clock()
        runner.rest()

    def _moves_on(self, case: Case) -> bool:
        """Say whether a call writes to indices: after a few calls in a row they may be out of range."""
        written = [case.values[name] for name in self.written if name in case.values]  # others a worker made up
        return any(hasattr(value, "dtype") and str(value.dtype) in ("torch.int32", "torch.int64") for value in written)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have the process stand still, where there is one."""
        with self._worker.paused() if self._worker is not None else contextlib.nullcontext():
            yield

    @property
    def built(self) -> bool:
        """Whether there is a live process that holds the solution."""
        return self._runner is not None and self._worker is not None and self._worker.alive

    @property
    def build_failed(self) -> bool:
        """Whether building ended in an error, which every later call repeats."""
        return self._failure is not None

    def close(self) -> None:
        """End the process; the next call starts another."""
        if self._runner is not None:
            self._runner.close()
        if self._worker is not None:
            self._worker.close()
        self._runner = self._worker = None
