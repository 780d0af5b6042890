"""Does a case prove anything under what is tolerated? Not where a wrong answer that costs nothing would pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_flashinfer.judge.comparison.vacuity import probe, unalike
from pytest_flashinfer.judge.oracle.truth import SAMPLED, hopeless, undecidable
from pytest_flashinfer.judge.reference.origin import ReferenceFailed

if TYPE_CHECKING:
    import torch

    from pytest_flashinfer.judge.comparison.record import Comparison
    from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth
    from pytest_flashinfer.judge.tolerance import Tolerance
    from pytest_flashinfer.worker.case import Case

SMALL = 1 << 24  # bytes of a case whose inputs are compared with those of another
Outputs = Callable[[], Mapping[str, "torch.Tensor"]]
Check = Callable[[Mapping[str, "torch.Tensor"], "Truth", Mapping[str, Any]], "str | None"]


class Lack(NamedTuple):
    """Why a case proves nothing; `stated`: for a tolerance that somebody stated, and not for the reference's sake."""

    reason: str
    stated: bool


class Proof:
    """What the cases of an item prove.

    `probed` keeps what was found of listed workloads, and what was said, for the next solution. `check` is the
    definition's own, which decides in place of bounds.
    """

    def __init__(self, tolerance: Tolerance, check: Check | None, probed: dict[Any, Lack | None]) -> None:
        self.tolerance = tolerance
        self.check = check
        self.probed = probed
        self._stated = tolerance.describe()
        self._first: dict[Any, tuple[Case, Truth]] = {}  # of a listed workload, whose answer is wrong for the others
        self._told: set[str] = set()  # outputs of which some drawn case tells right answers from cheap ones
        self._nothing: dict[str, tuple[str, Case]] = {}  # by output, why the first that does not lets a cheap one pass

    def note(self, found: Comparison, definition: str) -> None:
        """Warn of what a comparison left untested, once for all solutions; a check of the definition's own decides."""
        key = (definition, found.output, found.untested)
        if found.untested and self.check is None and key not in self.probed:
            warnings.warn(pytest.PytestWarning(f"{definition}: {found.output}: {found.untested}"), stacklevel=2)
            self.probed[key] = None  # said, unless that was raised: then the next item says it as well

    def lacking(self, case: Case, truth: Truth, outputs: Outputs) -> str:
        """Return why a case proves nothing, or an empty string; of drawn ones only all together may prove nothing.

        Raises ReferenceFailed where nobody stated the tolerance by which it does not.
        """
        if case.workload is not None:
            lack = self._of_listed(case, truth, outputs)
            if lack is not None and not lack.stated:
                raise ReferenceFailed(lack.reason)
            return "" if lack is None else lack.reason
        if self._stated:
            self._weigh(case, truth)
        return ""

    def lacking_of_all(self) -> tuple[str, Case] | None:
        """Return why no drawn case has proved anything of an output under a stated tolerance, and the first of them.

        `None` where each output has been told from cheap answers, or could not be: some are 0 in every case.
        """
        return next((found for name, found in self._nothing.items() if name not in self._told), None)

    def _weigh(self, case: Case, truth: Truth) -> None:
        """Note of which outputs a drawn case tells right answers from cheap ones: where both are the same, of none."""
        open_ones = {name: each for name, each in truth.outputs.items() if name not in self._told and _says(each)}
        found = probe(replace(truth, outputs=open_ones), self.tolerance, inputs=case.values) if open_ones else []
        self._told |= open_ones.keys() - {each.output for each in found}
        for each in found:
            if each.refused and each.stated:
                self._nothing.setdefault(each.output, (each.reason, case))

    def _of_listed(self, case: Case, truth: Truth, outputs: Outputs) -> Lack | None:
        """Look at a listed workload, and once at an answer to other contents; once for all solutions."""
        key = (case.definition.name, case.workload and case.workload.uuid, self._stated, "")
        first, answer = self._first.setdefault(key, (case, truth))
        previous, stale = None, (*key[:3], "previous")
        other = self._stated and answer is not truth and first.nbytes <= SMALL
        if other and (stale in self.probed or unalike(first.values, case.values)):
            key, previous = stale, {name: each.native for name, each in answer.outputs.items()}
        if key not in self.probed:
            self.probed[key] = self._found(case, truth, outputs, previous)
        return self.probed[key]

    def _found(
        self,
        case: Case,
        truth: Truth,
        outputs: Outputs,
        previous: Mapping[str, torch.Tensor | None] | None,
    ) -> Lack | None:
        parts = truth.parts if self.check is None else None
        if parts is not None and parts.refute_cheap(self.tolerance, case.values):
            return None
        found = probe(truth, self.tolerance, inputs=case.values, previous=previous)
        lack = next((Lack(each.reason, each.stated) for each in found if each.refused), None)
        lost = None if lack else undecidable(truth) or next(filter(None, map(hopeless, truth.outputs.values())), None)
        if lost is not None:
            warnings.warn(pytest.PytestWarning(f"{lost}: hardly any answer is wrong"), stacklevel=2)
        if self.check is not None and any(_differs_from_zero(each.native) for each in truth.outputs.values()):
            zeros = {name: value.new_zeros(value.shape) for name, value in outputs().items()}
            if self.check(zeros, truth, self.tolerance.limits()) is None:
                text = "the definition's own check proves nothing: zeros would pass; correct it"
                lack = Lack(text, stated=bool(self._stated))
        return lack


class OverrideProof:
    """What the cases of an item prove where an override of `compare` decides: nothing where it lets zeros pass.

    `passes` says whether it does. What was found of listed workloads is kept in `probed` under the override's `owner`,
    for the next solution; of drawn cases one has to tell zeros from the truth.
    """

    def __init__(
        self, passes: Callable[[Case, Truth, Mapping[str, torch.Tensor]], bool], owner: object, probed: dict[Any, Any]
    ) -> None:
        self.passes = passes
        self.owner = owner
        self.probed = probed
        self._told = False
        self._nothing: Case | None = None  # the first drawn case with zeros that pass

    def lacks(self, case: Case, truth: Truth) -> bool:
        """Say whether zeros pass on a listed workload; of drawn cases only all together may prove nothing."""
        if truth.in_full is not None:
            return False  # its bound is another case's
        if case.workload is None:
            if not self._told and case.nbytes <= SMALL:
                self._weigh(case, truth)
            return False
        key = (self.owner, case.definition.name, case.workload.uuid)
        if key not in self.probed:
            zeros = _zeros(truth)
            self.probed[key] = zeros is not None and self.passes(case, truth, zeros)
        return bool(self.probed[key])

    def lacking_of_all(self) -> Case | None:
        """Return the first drawn case on which zeros pass, if they do on all that could tell."""
        return None if self._told else self._nothing

    def _weigh(self, case: Case, truth: Truth) -> None:
        zeros = _zeros(truth)
        if zeros is not None and self.passes(case, truth, zeros):
            self._nothing = self._nothing or case
        elif zeros is not None:
            self._told = True


def _zeros(truth: Truth) -> dict[str, torch.Tensor] | None:
    """Return zeros for all outputs; `None` where they could be right, and where ids are drawn, of which many are."""
    outputs = {name: each.native for name, each in truth.outputs.items() if each.native is not None}
    drawn = any(each.how == SAMPLED for each in truth.outputs.values())
    if drawn or not any(map(_differs_from_zero, outputs.values())):
        return None
    return {name: value.new_zeros(value.shape) for name, value in outputs.items()}


def _says(output: OutputTruth) -> bool:
    """Say whether there is anything in an output that a cheap answer could miss."""
    if output.native is None or not output.native.numel() or output.how == SAMPLED:
        return False
    return output.undecided is None or not bool(output.undecided.all())


def _differs_from_zero(value: torch.Tensor | None) -> bool:
    """Say whether at least half of the elements are not zero: then zeros are no answer that could be right."""
    return value is not None and value.numel() > 0 and 2 * int((value != 0).sum()) >= value.numel()
