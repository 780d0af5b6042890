"""The handler in the reference's own worker: builds it, evaluates it, writes the truth into the judge's arena.

Build request: `reference` (source), `entry` (function name), `style` ("return" or "destination"), `hooks` (the other
code of the definition, see other_code.py; requests that name one of its errands in `do` are passed there).

Call request: `inputs`, a list of `{"name", "slot": ...}`, `{"name", "value": plain}` or `{"name", "float": hex}`, in
the order of the parameters; `outputs`, a list of `{"name", "dtype", "shape", "optional", "param", "native": slot,
"wide": slot or null, "allowance": slot or null, "undecided": slot or null, "probabilities": slot or null, "support":
slot or null, "ids": slot or null}` with sizes filled in; `seed`, `operands`, `budget` (bytes or null), `native`,
`bounded` and `closely` as in evaluate.py, `again` (whether to run the reference once more, with other random numbers,
to see that it gives the same), `rows` (inputs that may be cut, see rowwise.py), `host` (whether to find the truth
there, wherever the arena lies), `mutated` (inputs of which each run of the reference has a copy). The reply
says what was written: `how`, `nan_inputs`, `notes`, `seconds` and, per output, `name`, `present`, `wide`, `allowance`,
`undecided` (whether the slot was filled), `how`, `exact`, `widened`, `replaced`, `disputed`, `times`, `distinct`,
`seeded`, `notes`. A reference that writes into inputs which it has no copies of ends the call with an error of the kind
"mutates" that names them: the arena has to be filled again.

A request with `do` "rows" is one call's with a `part`, two ends of a range of rows, `case`, which names what it is
about, `native` and `last`. Its slots are those of the part, its shapes the whole's. The native run on the whole is kept
for the next part of the same case, unless this is the `last` one. The reply says `independent`; where that is false
nothing else is there, and only the whole tells the truth.

A request with `do` "shapes" has `inputs`, `outputs`, `seed` and `mutated`; `outputs` of the reply say which `size`
and `dtype` the reference gives, in order, `null` for one that it leaves out.
"""

from __future__ import annotations

import linecache
import math
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.answer_requests import (
    Built,
    OracleError,
    answer_part,
    answer_shapes,
    answer_whole,
)
from pytest_flashinfer.judge.oracle.determinism import OtherResultsError
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.mutated_inputs import MUTATES
from pytest_flashinfer.judge.oracle.truth import OutputSpec
from pytest_flashinfer.judge.reference.call import (
    MODULE,
    InvalidReferenceError,
    MutatesInputsError,
    described,
)
from pytest_flashinfer.judge.reference.origin import UNSTEADY
from pytest_flashinfer.judge.reference.other_code import Foreign

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_flashinfer.worker.call_request import Slots


def warm(device: str) -> None:
    """Have a device context ready, and the arithmetic that the definitions mean: float32 sums, no TF32."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.allow_tf32 = False
    sample = torch.ones(2, device=device)
    evaluate(torch.softmax, {"x": sample, "dim": 0}, {"y": OutputSpec("float32", (2,))})  # torch loads parts of itself


def build(request: dict[str, Any], folder: Path, device: str) -> Built:
    """Compile the reference's source; tracebacks show its lines. Raises `OracleError`.

    A reference that needs a module which is not installed says so when it is called: other code may do without it.
    """
    source, entry = request["reference"], request.get("entry", "run")
    place = str(folder / "reference.py")
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    module: dict[str, Any] = {"__name__": MODULE, "__file__": place, "torch": torch, "math": math}
    foreign = Foreign(request["hooks"], device) if request.get("hooks") else None
    style = request.get("style", "return")
    try:
        exec(compile(source, place, "exec"), module)  # noqa: S102 - the reference is code, and this process is its own
    except ModuleNotFoundError as error:
        return Built(_failing(error), style, foreign)
    except Exception as error:
        raise OracleError(f"the reference does not load: {described(error)}") from error
    function = module.get(entry)
    if not callable(function) and source:
        raise OracleError(f"the reference has no function {entry}")
    return Built(function or _failing(RuntimeError("there is no reference")), style, foreign)


def _failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


def call(kernel: object, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Carry out a request of the judge. Raises `OracleError`."""
    assert isinstance(kernel, Built)
    errand = request.get("do", "evaluate")
    if errand != "rows":
        kernel.rows = None
    if errand in ("make", "take", "check"):
        assert kernel.foreign is not None
        run = {"take": kernel.foreign.take, "check": kernel.foreign.check}.get(errand)
        return kernel.foreign.make(request) if run is None else run(request, memory)
    answer = {"shapes": answer_shapes, "rows": answer_part}.get(errand, answer_whole)
    try:
        return answer(kernel, request, memory)
    except InvalidReferenceError as error:
        raise OracleError(str(error), _kind(error)) from error


def _kind(error: InvalidReferenceError) -> str:
    if isinstance(error, MutatesInputsError):
        return MUTATES
    if isinstance(error, OtherResultsError):
        return UNSTEADY
    return "absent" if isinstance(error.__cause__, ModuleNotFoundError) else "reference"
