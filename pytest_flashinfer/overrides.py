"""What a conftest.py beside a definition overrides, called so that its errors are told in lines that name it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.data.raised import told
from pytest_flashinfer.default_inputs import tensor_shapes
from pytest_flashinfer.inputs.axes import shape_of
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import storage_shape
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.judge.origin import ReferenceFailed
from pytest_flashinfer.judge.tolerance import NAMES
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.judging import MEASURED, Failed
from pytest_flashinfer.own_inputs import as_declared
from pytest_flashinfer.worker.cudart import CudaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.contents import Inputs
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.judge.truth import Truth
    from pytest_flashinfer.judging import Call
    from pytest_flashinfer.record import Record
    from pytest_flashinfer.worker.case import Case

_SHOWN, _LONGEST = 10, 200  # lines of an assertion, and characters of a line: pytest adds what was compared
_LIBRARIES = ("torch.", "numpy.", "triton.")
_ITS_OWN = (Failed, InputsError, ReferenceFailed, pytest.PytestWarning)  # told in lines already
_OF = {  # what the functions are called with, that these fixtures return
    "inputs": "axes, recipe and workload",
    "compare": "call and truth",
    "flops": "a case",
}


@dataclass(frozen=True)
class Teller:
    """Says where an override is at fault: `given` is what the fixture `name` returns, `fixture` its own function."""

    name: str
    given: object
    here: Path
    fixture: object = None

    @property
    def begins(self) -> str:
        """Where the override begins; where that is not known of a callable, where its fixture does."""
        return position(self.given, self.here) or position(self.fixture, self.here) or "conftest.py"

    def told(self, error: Exception) -> str:
        """Return in a line where the override ended with an error, and with which."""
        if callable(self.given):
            return f"{self.place(error)}: {told(error)}"
        return f"{self.begins}: fixture {self.name} returns {self.given!r:.40}, not a function of {_OF[self.name]}"

    def place(self, error: BaseException, *, code: bool = False) -> str:
        """Return the innermost line, in the file that the override lies in, which an error passed through."""
        frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is that of the call here
        inside = [frame for frame in frames if frame.filename == frames[0].filename]
        if not inside:
            return self.begins
        place = f"{_shown(inside[-1].filename, self.here)}:{inside[-1].lineno}"
        return f"at {place} in {inside[-1].name}: {inside[-1].line}" if code else place


class OverriddenInputs:
    """An override of `inputs`. What it does wrong is no solution's fault: it is told as inputs that cannot be made."""

    def __init__(self, make: Inputs, definition: Definition, here: Path, fixture: object = None) -> None:
        self.make = make
        self.definition = definition
        self.teller = Teller("inputs", make, here, fixture)

    def __call__(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None = None) -> Mapping[str, Any]:
        """Return the inputs by name. Raises InputsError."""
        try:
            values = self.make(axes, recipe, workload)
        except Exception as error:
            if _is_told(error):
                raise
            raise InputsError(self.teller.told(error)) from error
        at = self.teller.begins
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
    """An override of `compare`. Its assertion is a verdict: the values are wrong, for the reason that it gives."""

    def __init__(
        self, compare: Callable[[Call, Truth], None], record: Record, here: Path, fixture: object = None
    ) -> None:
        self.compare = compare
        self.record = record
        self.teller = Teller("compare", compare, here, fixture)

    def __call__(self, call: Call, truth: Truth) -> None:
        """Raise Failed where the override finds a call wrong, and where it ends with an error of its own."""
        verdict = self._verdict(call, truth)
        self.record.set("status", "PASSED" if verdict is None else verdict.status)
        if verdict is not None:
            self.record.forget(*MEASURED)
            raise Failed(verdict, call.case, call.result.log if call.result is not None else "")

    def _verdict(self, call: Call, truth: Truth) -> Verdict | None:
        try:
            self.compare(call, truth)
        except (AssertionError, pytest.fail.Exception) as error:
            if isinstance(error, (Failed, pytest.xfail.Exception)):
                raise
            if isinstance(error, AssertionError) and _is_of_library(error):
                return self._invalid(error)
            said = [line[:_LONGEST] for line in str(error).strip().splitlines()[:_SHOWN]]
            place = self.teller.place(error, code=True)
            return Verdict("INCORRECT_NUMERICAL", said[0] if said else "`compare` fails", "\n".join([*said, place]))
        except Exception as error:
            if _is_told(error):
                raise
            return self._invalid(error)
        return None

    def admit(self, case: Case, truth: Truth) -> None:
        """Leave to the override what it makes of a truth."""

    def _invalid(self, error: Exception) -> Verdict:
        return Verdict("INVALID_REFERENCE", self.teller.told(error))


class OverriddenFlops:
    """An override of `flops`."""

    def __init__(self, flops: Callable[[Case], float], here: Path, fixture: object = None) -> None:
        self.flops = flops
        self.teller = Teller("flops", flops, here, fixture)

    def __call__(self, case: Case) -> float:
        """Return the number of operations of a call. Raises Failed where the override ends with an error."""
        try:
            return self.flops(case)
        except Exception as error:
            if _is_told(error):
                raise
            raise Failed(Verdict("INVALID_REFERENCE", self.teller.told(error)), case) from error


def fixture_of(item: pytest.Function, name: str) -> object:
    """Return the function of the fixture that an item gets by a name."""
    return item._fixtureinfo.name2fixturedefs[name][-1].func  # noqa: SLF001 - pytest tells it nowhere else


def position(function: object, here: Path) -> str:
    """Return where a callable begins, as file and line; an empty string where it does not tell."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return f"{_shown(code.co_filename, here)}:{code.co_firstlineno}" if code is not None else ""


def raised_in_fixture(item: pytest.Function, error: Exception) -> str | None:
    """Return in a line what the body of an override's fixture ended with; `None` where no override raised `error`."""
    names = {
        made.func.__code__: name
        for name in (*_OF, "tolerance")
        for made in item._fixtureinfo.name2fixturedefs.get(name, ())  # noqa: SLF001 - pytest tells it nowhere else
        if hasattr(made.func, "__code__") and not made.func.__module__.startswith("pytest_flashinfer.")
    }
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    last = max((number for number, (code, _) in enumerate(frames) if code in names), default=None)
    if last is None:
        return None
    code = frames[last][0]
    *_, line = (line for each, line in frames[last:] if each.co_filename == code.co_filename)
    at = f"{_shown(code.co_filename, item.config.invocation_params.dir)}:{line}"
    unknown = isinstance(error, TypeError) and str(error).startswith("Tolerance.__init__() got an unexpected")
    return f"{at}: fixture {names[code]}: {told(error)}" + f"; there are {', '.join(NAMES)}, outputs" * unknown


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
    text = str(error).lower()
    of_card = isinstance(error, (torch.OutOfMemoryError, CudaError)) or "cuda" in text  # as of a launch
    return isinstance(error, _ITS_OWN) or ("out of memory" in text and of_card)


def _is_of_library(error: AssertionError) -> bool:
    """Whether a library asserts something for itself, as torch does that it was built for a device: of no values.

    Functions that are there to assert are in `testing`; `torch._assert` is in `torch` itself.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_LIBRARIES) and "testing" not in module.split(".")


def _shown(file: str, here: Path) -> str:
    path = Path(file)
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()
