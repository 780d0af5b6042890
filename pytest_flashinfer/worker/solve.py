"""The handler for solutions: builds one, calls it, copies what it produced to where the judge reads.

The judge's checks do not rest on this module's honesty: it shares a process with foreign code. What it says are facts
for messages (shapes, counts) and durations; the values that are judged lie in the arena, whose guard zones, poison
and inputs the judge compares by itself.

A call's request: `inputs`, a list of `{"slot": ...}`, `{"value": plain}` or `{"float": text}`; `outputs`, a list of
`{"name", "live": slot, "snap": slot, "scalar", "optional", "also", "inplace"}`; `written`, for outputs whose values may
lie in an input a list of `{"name", "live": slot, "snap": slot}`; `timed`. To be called with the same once more takes
no more than `timed`. The reply: `problems`, `missing`,
`host_seconds`, and `compiled`, what Triton compiled: rows of kernel, seconds, constants. `live` is the destination,
that input, or for returned values the place of a second reading; `snap` is filled on the caller's stream as soon as the
call returns: on the CPU under the clock, so that what a call leaves for whoever reads its result is paid for. `missing`
are the outputs that were not returned, or as the very input which they are written into.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.build.registry import load
from pytest_flashinfer.worker import copies, cudart
from pytest_flashinfer.worker.call_request import argument_of
from pytest_flashinfer.worker.caller import Caller
from pytest_flashinfer.worker.clock import Cache, Clock, Span, open_clock
from pytest_flashinfer.worker.compilations import Compilations
from pytest_flashinfer.worker.intact import Intact
from pytest_flashinfer.worker.lasting import Lasting
from pytest_flashinfer.worker.thread_state import Leftovers
from pytest_flashinfer.worker.timing import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_flashinfer.worker.memory import Memory

_NOW = time.perf_counter  # bound before a solution is imported
_MOST_KERNELS, _LONGEST_NAME = 400, 200  # of one span, as told to the judge
_HELD = 1 << 28  # bytes of results that are kept alive; larger ones are not, for want of memory
_SPOILT = "output {} of an earlier call has been changed since: what is returned is its caller's"
_EARLIER, _SMALL = 5, 1 << 20  # of so many calls, if the results of each have so few bytes


class BuiltSolution:
    """A built solution with what outlives its calls."""

    def __init__(  # noqa: PLR0913 - what was made before the solution came
        self,
        function: Callable[..., Any],
        leftovers: Leftovers,
        compilations: Compilations,
        intact: Intact,
        device: str,
        *,
        destination: bool,
    ) -> None:
        self.function = function
        self.destination = destination
        self.leftovers = leftovers
        self.intact = intact
        self.clocks = _clocks(device)
        self.caller = _caller(device)  # None on the CPU
        self.asked: Mapping[str, Any] = {}  # the last request for a call in full
        self.held: copies.Held = []  # outputs and values of the last call
        self.earlier: deque[copies.Held] = deque(maxlen=_EARLIER)  # those of several, where none is timed
        self.lasting = Lasting()
        self.compilations = compilations


@functools.cache
def _clocks(device: str) -> dict[str, Clock]:
    caches: tuple[Cache, ...] = ("cold", "warm")
    return {cache: open_clock(device, cache) for cache in caches}


@functools.cache
def _caller(device: str) -> Caller | None:
    return Caller() if device != "cpu" else None


def warm(device: str) -> None:
    """Have a CUDA context, the clocks and the caller's stream ready, before anything foreign is here."""
    if device != "cpu":
        torch.zeros(1, device="cuda:0")
    _clocks(device)
    _caller(device)


def build(request: dict[str, Any], folder: Path, device: str) -> BuiltSolution:
    """Build the solution in `folder`, see build.registry."""
    leftovers, compilations = Leftovers(), Compilations()
    intact = Intact(_clocks(device).values())  # made last: it knows what there is
    kernel = load(request, folder)  # type: ignore[arg-type]
    leftovers.set_aside()
    return BuiltSolution(
        kernel.function, leftovers, compilations, intact, device, destination=bool(request["destination_passing"])
    )


def call(kernel: object, request: dict[str, Any], memory: Memory) -> dict[str, Any]:
    """Carry out one request of the judge."""
    assert isinstance(kernel, BuiltSolution)
    if request["do"] == "clock":
        spans = kernel.clocks[request["cache"]].read()
        memory.release()
        return _told(spans)
    if request["do"] == "reread":
        _reread(kernel, memory)
        spoilt = [["late", name, _SPOILT.format(name)] for name in kernel.lasting.changed()]
        return {"problems": [["left", "", line] for line in kernel.intact.broken()] + spoilt}
    if request["do"] == "warm":
        return _warm(kernel, request, memory)
    if request["do"] == "again":
        request = {**kernel.asked, "timed": request["timed"]}
    kernel.asked = request
    reply = _call(kernel, request, memory)
    if not request["timed"]:  # allocating anew would show in the next timed call
        memory.release()  # here, where nothing of the call is alive any more
    return reply


def _told(spans: list[Span]) -> dict[str, Any]:
    """Return spans as plain values, each kernel's name once: they are long, and nearly always the same in all spans."""
    numbers: dict[str, int] = {}
    rows = []
    for span in spans:
        kernels = [str(name)[:_LONGEST_NAME] for name in span.kernels[:_MOST_KERNELS]]
        each: dict[str, Any] = {**vars(span), "note": str(span.note)[:_LONGEST_NAME]}
        each["kernels"] = [numbers.setdefault(name, len(numbers)) for name in kernels]
        each["kernel_seconds"] = list(span.kernel_seconds[:_MOST_KERNELS])
        rows.append(each)
    return {"kernels": list(numbers), "spans": rows}


def _call(kernel: BuiltSolution, request: Mapping[str, Any], memory: Memory) -> dict[str, Any]:
    outputs, written = request["outputs"], request["written"]
    arguments = [argument_of(each, memory) for each in request["inputs"]]
    targets = [memory.tensor(output["live"]) for output in outputs] if kernel.destination else []
    before = _kept(kernel, request)

    def copied(result: object) -> copies.Copied:
        copy = ctypes.memmove if kernel.caller is None else kernel.caller.copy
        if kernel.destination:
            copies.snapshot([*outputs, *written], memory, copy)
            return [], [], copies.swapped(outputs, targets, memory)
        made = copies.collect(result, request, memory, before)
        copies.snapshot([each for each in written if each["name"] in made[1]], memory, copy)
        return made

    def after(result: object) -> Any:
        left = kernel.leftovers.take()
        return left, copied(result) if kernel.caller is None else result

    kernel.compilations.listen()
    kernel.leftovers.put_back()
    start = _NOW()
    left, made = _enter(kernel, request["timed"], [*arguments, *targets], after)
    seconds = _NOW() - start
    held, missing, problems = made if kernel.caller is None else copied(made)
    synchronize(memory)
    kernel.held = held
    if not request["timed"]:
        kernel.lasting.keep(held, memory)
    _reread(kernel, memory)
    if sum(output["bytes"] for output in outputs) > _HELD:
        kernel.held = []
    problems += [["left", "", line] for line in left]
    compiled = kernel.compilations.take()
    return {"problems": problems, "missing": missing, "host_seconds": seconds, "compiled": compiled}


def _kept(kernel: BuiltSolution, request: Mapping[str, Any]) -> copies.Held:
    """Return the earlier results that are still alive; a timed call finds the memory free that they would take."""
    last, kernel.held = kernel.held, []
    if request["timed"]:
        kernel.earlier.clear()
        kernel.lasting.drop()
    elif sum(output["bytes"] for output, _ in last) <= _SMALL:
        kernel.earlier.append(last)
        return [each for results in kernel.earlier for each in results]
    return last


def _warm(kernel: BuiltSolution, request: Mapping[str, Any], memory: Memory) -> dict[str, Any]:
    """Call under the clock until it shows the same time again; what the calls produced is for nobody."""
    kernel.held = []
    kernel.earlier.clear()
    arguments = [argument_of(each, memory) for each in request["inputs"]]
    if kernel.destination:
        arguments += [memory.tensor(output["live"]) for output in request["outputs"]]
    if kernel.caller is not None:
        kernel.caller.take()
    kernel.leftovers.put_back()
    warm_up(kernel.clocks[request["timed"]], lambda: kernel.function(*arguments), request["seconds"])
    kernel.leftovers.take()  # the calls that are judged leave as much, and are blamed for it
    if kernel.caller is not None:
        kernel.caller.take()
    synchronize(memory)
    return {}


def _enter(kernel: BuiltSolution, timed: str | None, arguments: list[Any], after: Callable[[object], Any]) -> Any:
    """Call on the default stream, and be on it again afterwards; returns what `after` made of the result."""
    caller = kernel.caller
    if caller is not None:
        caller.take()
    if timed:
        made = timed_benchmark(kernel.clocks[timed], kernel.function, arguments, after)
    else:
        if caller is not None:
            caller.hold_back()
        made = after(kernel.function(*arguments))
    if caller is not None:
        caller.take()
    return made


def timed_benchmark(
    clock: Clock, function: Callable[..., Any], arguments: list[Any], after: Callable[[object], Any]
) -> Any:
    """Call under the clock; plainly named, so that a solution that behaves otherwise for a benchmark shows it."""
    with clock.span():
        return after(function(*arguments))


def _reread(kernel: BuiltSolution, memory: Memory) -> None:
    """Copy the held results a second time, into the live slots: a result that changed since shows there."""
    for output, value in kernel.held:
        copies.write(memory, output["live"], value)
    synchronize(memory)


def synchronize(memory: Memory) -> None:
    """Wait for the device; raises CudaError for what failed on it meanwhile."""
    if memory.device != "cpu":
        cudart.synchronize()
