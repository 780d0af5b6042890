"""What the reference's own worker is asked about it, and the replies, which handler.py describes."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pytest_flashinfer.judge.oracle.determinism import demand_the_same
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.protocol import facts, inputs_of, question, write
from pytest_flashinfer.judge.oracle.rowwise import Rows, SlotWriter, by_rows
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth
from pytest_flashinfer.judge.reference.call import InvalidReferenceError, Reference
from pytest_flashinfer.worker.memory import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flashinfer.judge.reference.other_code import Foreign
    from pytest_flashinfer.worker.call_request import Slots

T = TypeVar("T")
_WAITS = (0.0, 1.0, 3.0)  # seconds before each attempt
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


def answer_whole(kernel: Built, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Evaluate the reference on the inputs in the arena and write what was asked for."""
    inputs, specs, options = question(request, memory)
    kernel.use_threads(inputs)
    parts = SlotWriter(request["outputs"], memory)
    ask = functools.partial(_find, kernel, inputs, specs, tuple(request.get("rows", ())), parts)
    truth = with_room(ask, options)
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


def answer_part(kernel: Built, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Write what was asked for about some rows of the outputs."""
    inputs, specs, options = question(request, memory)
    kernel.use_threads(inputs)
    ask = functools.partial(_rows, kernel, request, inputs, specs)
    truth = with_room(ask, options)
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


def with_room(ask: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Find a truth on a card that others use too: again once torch's reserve is given back, then natively only.

    Each time a little later: others may only need theirs for a moment. Raises OracleError where that does not suffice.
    """
    for seconds, more in zip(_WAITS, ({}, {}, {"budget": 0}), strict=True):
        time.sleep(seconds)
        try:
            return ask(**{**options, **more})
        except torch.OutOfMemoryError:
            pass
        except InvalidReferenceError as error:
            if not isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
        torch.cuda.empty_cache()
    raise OracleError("the card's memory does not suffice for the reference: run fewer processes on it")


def answer_shapes(kernel: Built, request: dict[str, Any], memory: Slots) -> dict[str, Any]:
    """Run the reference as written, and say what it gives. Raises OracleError for one of destination style."""
    if kernel.style == "destination":
        raise OracleError("the reference writes into outputs whose shape no input decides; have it return them")
    inputs = inputs_of(request, memory)
    specs = {each["name"]: OutputSpec("float32", (), each["optional"], each["param"]) for each in request["outputs"]}
    results = _reference(kernel, inputs, specs, request).raw()
    outputs = [None if x is None else {"size": list(x.shape), "dtype": str(x.dtype)} for x in results.values()]
    return {"outputs": outputs}
