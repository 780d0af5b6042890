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

import functools
import linecache
import math
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pytest_flashinfer.judge.oracle.determinism import OtherResultsError, demand_the_same
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.mutated_inputs import MUTATES
from pytest_flashinfer.judge.oracle.protocol import facts, inputs_of, question, write
from pytest_flashinfer.judge.oracle.rowwise import Rows, SlotWriter, by_rows
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth
from pytest_flashinfer.judge.reference.call import (
    MODULE,
    InvalidReferenceError,
    MutatesInputsError,
    Reference,
    described,
)
from pytest_flashinfer.judge.reference.origin import UNSTEADY
from pytest_flashinfer.judge.reference.other_code import Foreign
from pytest_flashinfer.worker.memory import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_flashinfer.worker.call_request import Slots

T = TypeVar("T")
_SMALL = 1 << 18  # elements of all inputs that one thread handles best
_LITTLE = 1 << 28  # bytes that may stay behind when all rows of a large case have been asked for


class OracleError(Exception):
    """An error of its own kind: "reference", "absent" where a module is not installed, `MUTATES` or `UNSTEADY`."""

    def __init__(self, message: str, kind: str = "reference") -> None:
        self.kind = kind
        self.message = message
        super().__init__(message)


class Built:
    """A reference ready to be called."""

    def __init__(self, function: Callable[..., Any], style: str, foreign: Foreign | None = None) -> None:
        self.function = function
        self.style = style
        self.foreign = foreign
        self.threads = torch.get_num_threads()
        self.rows: tuple[str, Rows] | None = None  # of the case that some rows were asked of

    def use_threads(self, inputs: Mapping[str, Any]) -> None:
        """Work on small tensors alone: waking other threads takes longer, most of all on a busy machine."""
        elements = sum(x.numel() for x in inputs.values() if isinstance(x, torch.Tensor))
        threads = 1 if elements < _SMALL else self.threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


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
    answer = {"shapes": _shapes, "rows": _part}.get(errand, _evaluate)
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


def _evaluate(kernel: Built, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Evaluate the reference on the inputs in the arena and write what was asked for."""
    inputs, specs, options = question(request, memory)
    kernel.use_threads(inputs)
    parts = SlotWriter(request["outputs"], memory)
    ask = functools.partial(_find, kernel, inputs, specs, tuple(request.get("rows", ())), parts)
    truth = _with_room(ask, options)
    if request.get("again") and not (options.get("native") or options.get("sampling")):
        demand_the_same(_reference(kernel, inputs, specs, {**options, "seed": options.get("seed", 0) ^ 1}), truth)
    outputs = [
        {**write(truth.outputs[each["name"]], each, memory), **parts.filled.get(each["name"], {})}
        for each in request["outputs"]
    ]
    reply = {**facts(truth), "outputs": outputs}
    del inputs, truth, ask
    give_back()
    return reply


def _part(kernel: Built, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Write what was asked for about some rows of the outputs."""
    inputs, specs, options = question(request, memory)
    kernel.use_threads(inputs)
    ask = functools.partial(_rows, kernel, request, inputs, specs)
    truth = _with_room(ask, options)
    reply: dict[str, Any] = {"independent": truth is not None}
    if truth is not None:
        outputs = [write(truth.outputs[each["name"]], each, memory) for each in request["outputs"]]
        reply |= {**facts(truth), "outputs": outputs}
    if truth is None or request["last"]:
        kernel.rows = None
        del inputs, truth, ask
        give_back(_LITTLE)
    return reply


def _rows(
    kernel: Built,
    request: Mapping[str, Any],
    inputs: Mapping[str, Any],
    specs: Mapping[str, OutputSpec],
    **options: Any,
) -> Truth | None:
    """Find the truth about the rows of a request; runs the reference on the whole where that was not done before."""
    known, rows = kernel.rows or ("", None)
    if rows is None or known != request["case"]:
        kernel.rows = rows = None  # not two of them at once
        run = _reference(kernel, inputs, specs, options)
        rows = Rows(run, tuple(request["rows"]))
        kernel.rows = request["case"], rows
    rows.run.inputs = inputs  # the arena may be another one by now
    part = slice(*request["part"])
    if options.get("native"):
        return rows.plain(part)
    find: Callable[..., Truth] = functools.partial(evaluate, kernel.function, style=rows.run.style, **options)
    return rows.find(part, lambda some, sizes, plain: find(some, sizes, plain=plain))


def _find(
    kernel: Built,
    inputs: Mapping[str, Any],
    specs: Mapping[str, OutputSpec],
    cut: tuple[str, ...],
    parts: SlotWriter,
    **options: Any,
) -> Truth:
    """Find a truth for some rows after the other; as a whole where `cut` names no inputs or rows depend on others."""
    run = _reference(kernel, inputs, specs, options)
    find: Callable[..., Truth] = functools.partial(evaluate, kernel.function, style=run.style, **options)
    parts.filled.clear()
    if not (options.get("native") or options.get("sampling")):
        found = by_rows(run, cut, lambda some, sizes, plain: find(some, sizes, plain=plain), parts.write)
        if found is not None:
            return found
    parts.filled.clear()
    return find(inputs, specs)


def _reference(
    kernel: Built, inputs: Mapping[str, Any], specs: Mapping[str, OutputSpec], options: Mapping[str, Any]
) -> Reference:
    own = options.get("seed", 0), options.get("mutated", ())
    return Reference(kernel.function, inputs, specs, kernel.style, *own)  # type: ignore[arg-type]


def _with_room(ask: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Find a truth on a card that others use too: again once torch's reserve is given back, then natively only."""
    for more in ({}, {}, {"budget": 0}):
        try:
            return ask(**{**options, **more})
        except torch.OutOfMemoryError:
            pass
        except InvalidReferenceError as error:
            if not isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
        torch.cuda.empty_cache()
    raise OracleError("the card's memory does not suffice for the reference: run fewer processes on it")


def _shapes(kernel: Built, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Run the reference as written, and say what it gives."""
    if kernel.style == "destination":
        raise OracleError("the reference writes into outputs whose shape no input decides; have it return them")
    inputs = inputs_of(request, memory)
    specs = {each["name"]: OutputSpec("float32", (), each["optional"], each["param"]) for each in request["outputs"]}
    results = _reference(kernel, inputs, specs, request).raw()
    outputs = [None if x is None else {"size": list(x.shape), "dtype": str(x.dtype)} for x in results.values()]
    return {"outputs": outputs}
