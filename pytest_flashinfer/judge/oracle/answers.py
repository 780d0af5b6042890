"""The truths of one definition's cases: the reference is asked once for all solutions, in a process of its own."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.floats.values import shows_leaks
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.judge.floats import is_float
from pytest_flashinfer.judge.oracle.bound_reuse import REUSED, reusable_bound, with_bound
from pytest_flashinfer.judge.oracle.chunked_truth import Divided, spans_of
from pytest_flashinfer.judge.oracle.leaks import of_what_they_do_not_reach
from pytest_flashinfer.judge.oracle.mutated_inputs import MutatedInputs
from pytest_flashinfer.judge.oracle.placement import doubtful, on_host
from pytest_flashinfer.judge.oracle.rowwise import leading
from pytest_flashinfer.judge.oracle.specs import open_specs, specs_of
from pytest_flashinfer.judge.oracle.truth import Truth, inadmissible
from pytest_flashinfer.judge.oracle.truth_cache import Shelf
from pytest_flashinfer.judge.reference import other_code_client
from pytest_flashinfer.judge.reference.origin import ModuleAbsent, NoReference, ReferenceFailed, Unfair, Unsteady
from pytest_flashinfer.judge.reference.process import ReferenceProcess
from pytest_flashinfer.worker.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.judge.oracle.bound_reuse import ReusableBound
    from pytest_flashinfer.judge.oracle.client import Oracle
    from pytest_flashinfer.judge.tolerance import Operands
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.pool import Pool

T = TypeVar("T")
KEPT_BYTES = 1 << 28  # of truths that are kept for the next solution
_SMALL = 1 << 26  # bytes of a case on which the reference is run again, to see whether it gives the same
_CASES = 3  # on which it has to: one may have values that hide what is added to them


class Answers:
    """Truths by case. The reference's process is started when first needed.

    `timeout` in seconds for one answer, `budget` in bytes for the wide copies that the oracle makes of a case, `keep`
    in bytes for truths that the next solution may ask for again, `spare` in bytes of the host's memory for those that
    took long.
    """

    def __init__(  # noqa: PLR0913 - all but three have defaults
        self,
        pool: Pool,
        definition: Definition,
        *,
        timeout: float,
        budget: int | None = None,
        keep: int = KEPT_BYTES,
        spare: int = 0,
        mutated: MutatedInputs | None = None,
    ) -> None:
        self.pool = pool
        self.definition = definition
        self.timeout = timeout
        self.operands: Operands = "working"
        self.options = {"budget": budget, "sampling": definition.is_sampling}
        self.native_seconds = 0.0  # that the reference took as it stands for all answers, also those that were known
        self.portable = True  # as far as is known, the host can find truths as well as the card
        self._process = ReferenceProcess(pool, definition, timeout, mutated or MutatedInputs(definition.name))
        self._doubts = _CASES  # the number of cases on which it has yet to give the same again
        self._unsteady: Unsteady | None = None
        self._divided = Divided(self._ask_rows, lambda case: _raised(self._found(case, host=False)))
        self.kept: Shelf[Truth | ReferenceFailed] = Shelf(keep, spare)

    @property
    def hung(self) -> str:
        """Why the reference is asked of no case any more; empty where it is."""
        return self._process.hung

    def credit(self, operands: Operands) -> None:
        """Say whether bounds have room for operands held in 16 bits inside; others are not used again then."""
        if operands != self.operands:
            self.operands = operands
            self._divided.bounds.clear()

    def answer(self, case: Case) -> Truth:
        """Return the truth about a case. Raises ReferenceFailed.

        Those of small drawn cases come from the host, unless the reference is less exact there than its bound. An
        output that misses one is judged by the card's own.
        """
        host = self.portable and on_host(case, self.pool.device)
        found = self._in_parts(case) or self._found(case, host=host)
        if host and doubtful(found):
            runs = isinstance(found, Truth)
            host, found = False, self._found(case, host=False)
            self.portable = runs or isinstance(found, ReferenceFailed)
        found = _raised(found)
        self.native_seconds += found.seconds.get("native", 0.0)
        if case.bound_of is None and not host:
            return self._with_closer(case, found)
        # This is made anew for each answer, since it has the inputs: with a truth that is kept they would be kept.
        return replace(found, in_full=lambda: self.in_full(case))

    def prefetch(self, case: Case) -> None:
        """Begin to find the truth about a case that has been answered, where the host does, beside further calls."""
        on_the_host = self.portable and on_host(case, self.pool.device)
        oracle, key = self._process.running, (case.key, self.operands, True, False)
        if oracle is not None and case.bound_of is None and on_the_host and self.kept.get(key) is None:
            with contextlib.suppress(WorkerError):  # asked again, it says what is wrong
                oracle.begin(case.values, specs_of(case), **self._settings(case))

    def in_full(self, case: Case) -> Truth:
        """Return the truth about a case with a bound of its own, found on the run's device. Raises ReferenceFailed."""
        own = replace(case, bound_of=None)
        return self._in_parts(own) or self._with_closer(own, _raised(self._found(own, host=False)))

    def _with_closer(self, case: Case, found: Truth) -> Truth:
        """Have a closer look be taken before anybody is blamed, where there are integers that rounding may decide."""
        whole = any(not is_float(spec.dtype) for spec in self.definition.outputs.values())
        if not whole or not found.how.startswith("lifted"):
            return found
        return replace(found, closer=lambda: _raised(self._found(case, host=False, closely=True)))

    def answer_if_fair(self, case: Case) -> Truth:
        """Return the truth about a generated case. Raises ReferenceFailed where it would be no fair test as well."""
        return _fair(self.answer(case))

    def close(self) -> None:
        """End the worker and forget all truths."""
        self.kept.clear()
        self._divided.bounds.clear()
        self._process.close()

    def shapes(self, case: Case) -> dict[str, tuple[tuple[int, ...], str] | None]:
        """Return shape (as stored) and dtype of every output, as the reference gives them. Raises ReferenceFailed."""
        specs = open_specs(self.definition)
        seed = case.recipe.short_seed
        found = self._run(case, lambda oracle: oracle.shapes(case.values, specs, seed=seed, timeout=self.timeout))
        return {
            name: None if each is None else (tuple(map(int, each["size"])), str(each["dtype"]).removeprefix("torch."))
            for name, each in zip(specs, found, strict=True)
        }

    def make(
        self, what: str, axes: Mapping[str, int], seed: int, scalars: Mapping[str, Any]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the inputs that the definition's own code makes, and the names it makes that are no inputs.

        `what` is "init" or "custom". Raises InputsError.
        """
        request = {"what": what, "axes": dict(axes), "seed": seed, "scalars": dict(scalars)}
        try:
            return self._process.ask(lambda oracle: other_code_client.make(oracle, request, self.timeout))
        except NoReference as error:
            raise ModuleAbsent(str(error)) from error
        except ReferenceFailed as error:
            raise InputsError(str(error)) from error

    def check(self, outputs: Mapping[str, torch.Tensor], truth: Truth, settings: Mapping[str, Any]) -> str | None:
        """Return why the definition's own check refuses outputs, or `None`. Raises ReferenceFailed where it fails."""
        pairs = [(each.native, outputs.get(name)) for name, each in truth.outputs.items()]
        return self._process.ask(lambda oracle: other_code_client.check(oracle, pairs, settings, self.timeout))

    def _found(self, case: Case, *, host: bool, closely: bool = False) -> Truth | ReferenceFailed:
        """Look a truth up, or find and keep it."""
        key = (case.key, self.operands, host, closely)
        found = self._unsteady or self.kept.get(key)
        if found is None:
            self.kept.make_room()
            start = time.perf_counter()
            if case.bound_of is None:
                again = self._asks_again(case)
                found = self._ask(case, host=host, **({"closely": True} if closely else {}))
                self._doubts -= again and isinstance(found, Truth)
                self._unsteady = found if isinstance(found, Unsteady) else None
            else:
                found = self._reusing(case, case.bound_of, host=host)
            if case.workload is None and isinstance(found, Truth):
                found = replace(found, unfair=inadmissible(found))
            contract = contract_of(case.definition)
            if isinstance(found, Truth) and shows_leaks(contract, plan_of(contract), case.recipe):
                # Of a failure that was written down as well.
                found = of_what_they_do_not_reach(found, case, lambda other: self._plainly(other, host=host))
            self.kept.put(key, found, time.perf_counter() - start)
        return found

    def _plainly(self, case: Case, *, host: bool) -> Truth | ReferenceFailed:
        return self._ask(case, native=True, bounded=False, host=host)

    def _reusing(self, case: Case, known: Case, *, host: bool) -> Truth | ReferenceFailed:
        """Take the native run for the truth, and what the bounds of a `known` case usually are for the bound.

        The native run and an honest kernel may both be off; contents that differ may need a little more than others.
        Where some need far more, as rows do whose order is a matter of rounding, `Truth.in_full` says so.
        """
        bounds = self._bounds_of(known)
        bounded = any(bounds.get(name) is None for name in case.definition.outputs)
        found = self._ask(case, native=True, bounded=bounded, host=host)
        if isinstance(found, ReferenceFailed):
            return found
        outputs = {name: with_bound(each, bounds[name]) for name, each in found.outputs.items()}
        return replace(found, outputs=outputs, how=REUSED)

    def _in_parts(self, case: Case) -> Truth | None:
        """Return the truth about a large listed case for some rows after the other, where that can be done."""
        specs = specs_of(case)
        known = self.options["sampling"] or case.key in self._divided.undivided
        if known or not spans_of(case, specs, self.kept.near):
            return None
        self.kept.make_room()
        try:
            return self._divided.answer(case, specs, None if case.bound_of is None else self._bounds_of(case.bound_of))
        except ReferenceFailed:  # the whole is asked for, and what comes of it is kept
            self._divided.undivided.add(case.key)
            return None

    def _bounds_of(self, case: Case) -> Mapping[str, ReusableBound | None]:
        """Return the bounds of a case that other contents may use, found once."""
        known = self._divided.bounds
        if case.key not in known:
            truth = self.answer(case)
            for _ in truth.parts or ():
                pass  # the last of them tells
            if case.key not in known:
                known[case.key] = {name: reusable_bound(each) for name, each in truth.outputs.items()}
        return known[case.key]

    def _ask(self, case: Case, **options: Any) -> Truth | ReferenceFailed:
        settings = {**self._settings(case), **options}
        try:
            return self._run(case, lambda oracle: oracle.ask(case.values, specs_of(case), **settings))
        except ReferenceFailed as error:
            return error

    def _ask_rows(self, case: Case, part: slice, last: bool) -> Truth | None:  # noqa: FBT001 - one of three facts
        native = case.bound_of is not None
        settings = {**self._settings(case), "case": repr(case.key), "last": last, "native": native}
        return self._run(case, lambda oracle: oracle.ask_rows(case.values, specs_of(case), part, **settings))

    def _run(self, case: Case, question: Callable[[Oracle], T]) -> T:
        return self._process.ask(question, nbytes=case.given_nbytes)  # what a case gives may be all that is known

    def _settings(self, case: Case) -> dict[str, Any]:
        seed = case.recipe.short_seed
        asked = {"timeout": self.timeout, "seed": seed, "rows": leading(case.definition), "operands": self.operands}
        return {**asked, **self.options, "again": self._asks_again(case)}

    def _asks_again(self, case: Case) -> bool:
        """Say whether the reference is to be run again, to see that it gives the same: on a few small cases."""
        return self._doubts > 0 and case.nbytes <= _SMALL and all(math.prod(each.shape) for each in case.outputs)


def _raised(found: Truth | ReferenceFailed) -> Truth:
    if isinstance(found, ReferenceFailed):
        raise found.with_traceback(None)  # a traceback would grow, and hold on to the tensors of its frames
    return found


def _fair(truth: Truth) -> Truth:
    """Return a truth that is a fair test, and so is the one with a bound of its own. Raises Unfair."""
    if truth.unfair is not None:
        raise Unfair(truth.unfair)
    whole = truth.in_full
    return truth if whole is None else replace(truth, in_full=lambda: _fair(whole()))
