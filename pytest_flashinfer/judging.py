"""What the `compare` fixture returns: from a call and the truth to a pass or the reason why not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pytest_flashinfer.cases.proof import SMALL, Proof
from pytest_flashinfer.judge.comparison.compare import compare, refuse_unfair
from pytest_flashinfer.judge.comparison.record import Comparison
from pytest_flashinfer.judge.comparison.topk import is_ranked
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.judge.verdict import Verdict, decide
from pytest_flashinfer.solution_call import Failed
from pytest_flashinfer.worker.outcome import MALFORMED
from pytest_flashinfer.worker.unwritten import NOTHING, statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from pytest_flashinfer.cases.proof import Check, Lack
    from pytest_flashinfer.judge.oracle.truth import Truth
    from pytest_flashinfer.judge.sampling.draws import Draws
    from pytest_flashinfer.judge.tolerance import Tolerance
    from pytest_flashinfer.outputs.properties import Record
    from pytest_flashinfer.solution_call import Call
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.runner import RunResult

MEASURED = ("max_abs", "max_rel", "bound_share")  # what is recorded of the calls of an item that passed


class Judge(Protocol):
    """Decides about calls; `check_reference` about a truth."""

    def __call__(self, call: Call, truth: Truth) -> None:
        """Raise Failed where the call is wrong."""

    def check_reference(self, case: Case, truth: Truth) -> None:
        """Raise ReferenceFailed where no call could be right, or hardly any wrong for all that anybody tolerates."""

    def finish(self) -> None:
        """Raise Failed where a cheap answer to every drawn case would pass."""


class Compare:
    """Compares every output of a call and decides. Raises Failed.

    `check` is the definition's own: it says which values are right, but passes no other shape, dtype or non-finite
    element than the reference has.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        record: Record,
        check: Check | None = None,
        probed: dict[Any, Lack | None] | None = None,
    ) -> None:
        self.tolerance = tolerance
        self.record = record
        self.check = check
        self.proof = Proof(tolerance, check, {} if probed is None else probed)
        self._last: Mapping[str, torch.Tensor] = {}  # what the call before gave, where that was right and is small
        self._draws: dict[str, Draws] = {}  # of all calls of an item: a few say nothing of a distribution

    def __call__(self, call: Call, truth: Truth) -> None:
        """Raise Failed where the call is wrong, or where the tolerance would let any cheap answer pass."""
        verdict = self.verdict(call, truth)
        self.record.set("status", verdict.status)
        errors = dict(zip(MEASURED, (verdict.max_abs, verdict.max_rel, verdict.share), strict=True))
        if not verdict.passed:
            self.record.forget(*MEASURED)  # those of calls that passed say nothing of one that did not
            if verdict.share is not None and verdict.share <= 1:
                del errors["bound_share"]  # it fails for what is not finite, and the rest says nothing either
        for name, value in errors.items():
            if value is not None and math.isfinite(value):
                self.record.raise_to(name, value)
        kept = verdict.passed and call.case.nbytes <= SMALL  # who is wrong twice in one way need not keep anything
        self._last = call.result.outputs if kept and call.result is not None else {}
        if not verdict.passed:
            log = call.error.log if call.error is not None else call.result.log if call.result is not None else ""
            raise Failed(verdict, call.case, log)
        lacking = self.proof.lacking(call.case, truth, lambda: call.outputs) if truth.in_full is None else ""
        if lacking:
            raise Failed(Verdict("INVALID_REFERENCE", lacking), call.case)

    def check_reference(self, case: Case, truth: Truth) -> None:
        """Raise ReferenceFailed where no call could be right, or hardly any wrong for all that anybody tolerates."""
        refuse_unfair(truth, self.tolerance)
        self.proof.lacking(case, truth, lambda: _given(truth))  # a tolerance that proves nothing is not its fault

    def finish(self) -> None:
        """Raise Failed where the stated tolerance lets a cheap answer to every drawn case pass."""
        found = self.proof.lacking_of_all()
        if found is not None:
            raise Failed(Verdict("INVALID_REFERENCE", found[0]), found[1])

    def verdict(self, call: Call, truth: Truth) -> Verdict:
        """Decide about one call; it is not wrong by another case's bound, nor where the reference is to blame."""
        if call.error is not None:
            return decide(error=call.error)
        assert call.result is not None
        if truth.parts is not None and self.check is None and not call.violations:
            passed = truth.parts.passed(call.result.outputs, self.tolerance)
            if passed is not None:
                return decide(passed)
            if truth.in_full is not None:
                return self.verdict(call, truth.in_full())
        verdict = self._decided(call, call.result, truth)
        again = truth.in_full or truth.closer
        if verdict.passed or call.violations or again is None:
            return self._blamed(verdict, call, truth)
        try:
            found = again()
        except ReferenceFailed as error:
            if again is truth.in_full:
                raise
            # A closer look only excuses: what is known without it is enough to blame somebody.
            details = f"{verdict.details}\nno closer look at what rounding decides: {error}"
            return self._blamed(replace(verdict, details=details), call, truth)
        return self.verdict(call, found)

    def _blamed(self, verdict: Verdict, call: Call, truth: Truth) -> Verdict:
        """Return a verdict. Raises Unfair where values are wrong, and the reference's own would be."""
        if not call.violations and verdict.status in ("INCORRECT_NUMERICAL", "INVALID_REFERENCE"):
            refuse_unfair(truth, self.tolerance)
        return verdict

    def _decided(self, call: Call, result: RunResult, truth: Truth) -> Verdict:
        comparisons = self._comparisons(result, call.case, truth)
        if self.check is not None and not call.violations:
            comparisons = self._checked(self.check, comparisons, result.outputs, truth)
        return decide(comparisons, violations=call.violations)

    def _checked(
        self, check: Check, comparisons: Sequence[Comparison], outputs: Mapping[str, torch.Tensor], truth: Truth
    ) -> Sequence[Comparison]:
        """Have the definition's own check decide about values."""
        if any(not each.ok and each.problem != "values" for each in comparisons):
            return comparisons
        refused = check(outputs, truth, self.tolerance.limits())
        if refused is None:
            return [_accepted(each) for each in comparisons]
        return [*comparisons, Comparison("check", ok=False, problem="values", lines=(f"outputs {refused}",))]

    def _comparisons(self, result: RunResult, case: Case, truth: Truth) -> Sequence[Comparison]:
        malformed = {each.tensor for each in result.violations if each.kind in MALFORMED}
        given, declared = case.definition.inputs, case.definition.outputs
        found = [
            compare(
                _beside(output.native, result.outputs.get(name)),
                output,
                self.tolerance,
                equal_nan=truth.nan_inputs,
                inputs=case.values,
                previous=self._last.get(name),
                ranked=is_ranked(name, declared),
                alike=[each for each, spec in given.items() if spec.shape == declared[name].shape],
                draws=self._draws,
            )
            for name, output in truth.outputs.items()
            if name not in malformed and "" not in malformed
            if name in result.outputs or not declared[name].optional
        ]
        for each in found:
            self.proof.note(each, case.definition.name)
        told = {each.tensor for each in result.violations if each.kind == "unwritten"}
        return [_with_poison(each, result.unwritten.get(each.output, ""), told=each.output in told) for each in found]


def _given(truth: Truth) -> Mapping[str, torch.Tensor]:
    """Return what the reference gives, as a call gives it."""
    return {name: each.native for name, each in truth.outputs.items() if each.native is not None}


def _beside(native: torch.Tensor | None, value: torch.Tensor | None) -> torch.Tensor | None:
    """Return an output where the truth is: large ones wait on the host."""
    return value if native is None or value is None else value.to(native.device)


def _with_poison(found: Comparison, unwritten: str, *, told: bool) -> Comparison:
    """Return a failure that says which rows nobody wrote: where all bits are a value, single ones show nothing.

    Of what was never written as a whole there is nothing else to say. `told`: a violation says it.
    """
    if found.ok or not unwritten or unwritten[0].isdigit() or (told and unwritten != NOTHING):
        return found
    return replace(found, lines=(statement(found.output, unwritten), *(found.lines if unwritten != NOTHING else ())))


def _accepted(found: Comparison) -> Comparison:
    lines = (f"{found.output}: accepted by the definition's own check", *found.lines)
    return found if found.ok else replace(found, ok=True, problem="", lines=lines)
