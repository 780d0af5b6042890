"""What a conftest.py beside a definition overrides, called so that its errors are told in lines that name it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.cases.default_inputs import tensor_shapes
from pytest_flashinfer.cases.own_inputs import as_declared
from pytest_flashinfer.cases.proof import OverrideProof
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import storage_shape
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.sizes.axes import shape_of
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.judging import MEASURED
from pytest_flashinfer.overrides.override_faults import OverrideFault
from pytest_flashinfer.solution_call import Call, Failed
from pytest_flashinfer.worker.memory import is_out_of_memory
from pytest_flashinfer.worker.outcome import RunResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from pytest_flashinfer.cases.input_makers import Inputs
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.judge.oracle.truth import Truth
    from pytest_flashinfer.outputs.properties import Record
    from pytest_flashinfer.worker.case import Case

_SHOWN, _LONGEST = 10, 200  # lines of an assertion, and characters of a line: pytest adds what was compared
_LIBRARIES = ("torch.", "numpy.", "triton.")
_ITS_OWN = (Failed, InputsError, ReferenceFailed, pytest.PytestWarning)  # told in lines already


class OverriddenInputs:
    """An override of `inputs`. What it does wrong is no solution's fault: it is told as inputs that cannot be made."""

    def __init__(self, make: Inputs, definition: Definition, invocation_dir: Path, fixture: object = None) -> None:
        self.make = make
        self.definition = definition
        self.fault = OverrideFault("inputs", make, invocation_dir, fixture)

    def __call__(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None = None) -> Mapping[str, Any]:
        """Return the inputs by name. Raises InputsError."""
        try:
            values = self.make(axes, recipe, workload)
        except Exception as error:
            if _is_told(error):
                raise
            raise InputsError(self.fault.told(error)) from error
        at = self.fault.begins
        if not isinstance(values, Mapping):
            raise InputsError(f"{at}: `inputs` gives {type(values).__name__}, not the values of all inputs by name")
        declared = self.definition.inputs
        lacking = [name for name, spec in declared.items() if name not in values and not spec.optional]
        if lacking or values.keys() - declared:
            what = f"no `{lacking[0]}`" if lacking else f"`{min(values.keys() - declared)}`, which is no input"
            raise InputsError(f"{at}: `inputs` gives {what}")
        try:
            # In the order of the definition, and nothing left out: arguments are given by position.
            found = {name: as_declared(name, values.get(name), spec) for name, spec in declared.items()}
            if not self.definition.init and not self.definition.custom_inputs:  # whose results decide sizes
                _check_shapes(self.definition, axes, found)
        except InputsError as error:
            raise InputsError(f"{at}: {error}") from None
        return found


class OverriddenCompare:
    """An override of `compare`. Its assertion is a verdict: the values are wrong, for the reason that it gives.

    One that lets zeros pass is refused: `probed` keeps of which workloads it does.
    """

    def __init__(
        self,
        compare: Callable[[Call, Truth], object],
        record: Record,
        invocation_dir: Path,
        fixture: object = None,
        probed: dict[Any, Any] | None = None,
    ) -> None:
        self.compare = compare
        self.record = record
        self.fault = OverrideFault("compare", compare, invocation_dir, fixture)
        self.proof = OverrideProof(self._passes, fixture, {} if probed is None else probed)

    def __call__(self, call: Call, truth: Truth) -> None:
        """Raise Failed where the override finds a call wrong, and where it is at fault itself."""
        verdict = self._verdict(call, truth) or self._lacking(call.case, truth)
        self.record.set("status", "PASSED" if verdict is None else verdict.status)
        if verdict is not None:
            self.record.forget(*MEASURED)
            raise Failed(verdict, call.case, call.result.log if call.result is not None else "")

    def _verdict(self, call: Call, truth: Truth) -> Verdict | None:
        try:
            found = self.compare(call, truth)
        except (AssertionError, pytest.fail.Exception) as error:
            if isinstance(error, (Failed, pytest.xfail.Exception)):
                raise
            if isinstance(error, AssertionError) and _is_of_library(error):
                return self._invalid(error)
            said = [line[:_LONGEST] for line in str(error).strip().splitlines()[:_SHOWN]]
            place = self.fault.place(error, code=True)
            return Verdict("INCORRECT_NUMERICAL", said[0] if said else "`compare` fails", "\n".join([*said, place]))
        except Exception as error:
            if _is_told(error):
                raise
            return self._invalid(error)
        return None if found is None else self._returned(found)

    def check_reference(self, case: Case, truth: Truth) -> None:
        """Raise Failed where the override lets zeros pass; all else about a truth is left to it."""
        verdict = self._lacking(case, truth)
        if verdict is not None:
            raise Failed(verdict, case)

    def finish(self) -> None:
        """Raise Failed where the override lets zeros pass on every drawn case."""
        case = self.proof.lacking_of_all()
        if case is not None:
            raise Failed(self._nothing_proved(), case)

    def _lacking(self, case: Case, truth: Truth) -> Verdict | None:
        return self._nothing_proved() if self.proof.lacks(case, truth) else None

    def _nothing_proved(self) -> Verdict:
        text = f"{self.fault.begins}: `compare` proves nothing: zeros would pass; have it assert more"
        return Verdict("INVALID_REFERENCE", text)

    def _passes(self, case: Case, truth: Truth, outputs: Mapping[str, torch.Tensor]) -> bool:
        """Say whether the override lets outputs pass that no solution gave; however else it ends, it does not."""
        call = Call(case, RunResult(dict(outputs), []))
        try:
            with self.record.unchanged():
                found = self.compare(call, replace(truth, closer=None))
        except (Exception, pytest.fail.Exception, pytest.skip.Exception):  # noqa: BLE001 - of somebody else's code
            return False
        if found is not None:
            raise Failed(self._returned(found), case)
        return True

    def _returned(self, found: object) -> Verdict:
        what = f"`compare` returns {type(found).__name__}, which decides nothing"
        text = f"{self.fault.begins}: {what}: `assert` what has to hold, and return nothing"
        return Verdict("INVALID_REFERENCE", text)

    def _invalid(self, error: Exception) -> Verdict:
        return Verdict("INVALID_REFERENCE", self.fault.told(error))


class OverriddenFlops:
    """An override of `flops`."""

    def __init__(self, flops: Callable[[Case], float | None], invocation_dir: Path, fixture: object = None) -> None:
        self.flops = flops
        self.fault = OverrideFault("flops", flops, invocation_dir, fixture)

    def __call__(self, case: Case) -> float | None:
        """Return the number of operations of a call, if the override has one. Raises Failed where it is at fault."""
        try:
            found = self.flops(case)
            return None if found is None else float(found)
        except Exception as error:
            if _is_told(error):
                raise
            raise Failed(Verdict("INVALID_REFERENCE", self.fault.told(error)), case) from error


def _check_shapes(definition: Definition, axes: Mapping[str, int], values: Mapping[str, Any]) -> None:
    """Raise InputsError for a tensor of another shape than the axes make it, as far as they do."""
    contract = contract_of(definition)
    env = {**axes, **{name: value for name, value in values.items() if isinstance(value, int)}}
    for name, have in tensor_shapes(values).items():
        sizes = shape_of(contract.dims[name] or (), env)
        known = [size for size in sizes if size is not None]
        want = storage_shape(known, contract.dtype(name))
        if len(known) == len(sizes) and want != have:
            raise InputsError(f"input {name} is made with shape {list(have)}, the axes make it {list(want)}")


def _is_told(error: Exception) -> bool:
    """Whether others say what an error is: of the judge's own, and of a card whose memory does not suffice."""
    return isinstance(error, _ITS_OWN) or is_out_of_memory(error)


def _is_of_library(error: AssertionError) -> bool:
    """Whether a library asserts something for itself, as torch does that it was built for a device: of no values.

    Functions that are there to assert are in `testing`; `torch._assert` is in `torch` itself.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_LIBRARIES) and "testing" not in module.split(".")
