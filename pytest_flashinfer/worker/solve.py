"""The handler for solutions: builds one, calls it, copies what it produced to where the judge reads.

The judge's checks do not rest on this module's honesty: it shares a process with foreign code. What it says are facts
for messages (shapes, counts) and durations; the values that are judged lie in the arena, whose guard zones, poison
and inputs the judge compares by itself.

A call's request: `inputs`, a list of `{"slot": ...}`, `{"value": plain}` or `{"float": text}`; `outputs`, a list of
`{"name", "live": slot, "snap": slot, "scalar", "optional", "also", "inplace"}`; `timed`. The reply: `problems`,
`missing`, `host_seconds`, and `compiled`, what Triton compiled: rows of kernel, seconds, constants. `live` is the
destination, or for value-returning solutions the place of a second reading; `snap` is filled on the caller's stream as
soon as the call returns.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.build.registry import load
from pytest_flashinfer.worker import cudart, results
from pytest_flashinfer.worker.caller import Caller
from pytest_flashinfer.worker.clock import Cache, Clock, open_clock
from pytest_flashinfer.worker.compilations import Compilations
from pytest_flashinfer.worker.memory import DTYPES, Memory
from pytest_flashinfer.worker.timing import warm_up

if TYPE_CHECKING:
    from pathlib import Path

_TENSOR = torch.Tensor  # all bound before a solution is imported
_COPY = torch.Tensor.copy_
_DETACH = torch.Tensor.detach
_VIEW = torch.Tensor.view
_FILL = torch.Tensor.fill_
_NO_GRAD = torch.no_grad
_NOW = time.perf_counter
Held = list[tuple[Mapping[str, Any], Any]]  # outputs as requested, with the values returned for them
_MOST_KERNELS, _LONGEST_NAME = 400, 200  # of one span, as told to the judge
_HELD = 1 << 28  # bytes of results that are kept alive; larger ones are not, for want of memory


class Solution:
    """A built solution with what outlives its calls."""

    def __init__(
        self, function: Callable[..., Any], clocks: dict[str, Clock], caller: Caller | None, *, destination: bool
    ) -> None:
        self.function = function
        self.destination = destination
        self.clocks = clocks
        self.caller = caller  # None on the CPU
        self.held: Held = []  # outputs and values of the last call
        self.compilations = Compilations()


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


def build(request: dict[str, Any], folder: Path, device: str) -> Solution:
    """Build the solution in `folder`, see build.registry."""
    kernel = load(request, folder)  # type: ignore[arg-type]
    destination = bool(request["destination_passing"])
    return Solution(kernel.function, _clocks(device), _caller(device), destination=destination)


def call(kernel: object, request: dict[str, Any], memory: Memory) -> dict[str, Any]:
    """Carry out one request of the judge."""
    assert isinstance(kernel, Solution)
    if request["do"] == "clock":
        spans = kernel.clocks[request["cache"]].read()
        memory.release()
        return {"spans": [_span(span) for span in spans]}
    if request["do"] == "reread":
        _reread(kernel, memory)
        return {}
    if request["do"] == "warm":
        return _warm(kernel, request, memory)
    reply = _call(kernel, request, memory)
    if not request["timed"]:  # allocating anew would show in the next timed call
        memory.release()  # here, where nothing of the call is alive any more
    return reply


def _span(span: Any) -> dict[str, Any]:
    return {**vars(span), "kernels": [str(name)[:_LONGEST_NAME] for name in span.kernels[:_MOST_KERNELS]],
            "kernel_seconds": list(span.kernel_seconds[:_MOST_KERNELS]), "note": str(span.note)[:_LONGEST_NAME]}


def _call(kernel: Solution, request: Mapping[str, Any], memory: Memory) -> dict[str, Any]:
    outputs = request["outputs"]
    arguments = [_argument(each, memory) for each in request["inputs"]]
    targets = [memory.tensor(output["live"]) for output in outputs] if kernel.destination else []
    before, kernel.held = kernel.held, []
    kernel.compilations.listen()
    start = _NOW()
    result = _enter(kernel, request["timed"], [*arguments, *targets])
    seconds = _NOW() - start
    held: Held = []
    missing: list[str] = []
    if kernel.destination:
        copy = ctypes.memmove if kernel.caller is None else kernel.caller.copy
        problems = _snapshot(outputs, targets, memory, copy)
    else:
        held, missing, problems = _collect(result, request, memory, before)
    synchronize(memory)
    kernel.held = held
    _reread(kernel, memory)
    if sum(output["bytes"] for output in outputs) > _HELD:
        kernel.held = []
    compiled = kernel.compilations.take()
    return {"problems": problems, "missing": missing, "host_seconds": seconds, "compiled": compiled}


def _warm(kernel: Solution, request: Mapping[str, Any], memory: Memory) -> dict[str, Any]:
    """Call under the clock until it shows the same time again; what the calls produced is for nobody."""
    kernel.held = []
    arguments = [_argument(each, memory) for each in request["inputs"]]
    if kernel.destination:
        arguments += [memory.tensor(output["live"]) for output in request["outputs"]]
    if kernel.caller is not None:
        kernel.caller.take()
    calls = warm_up(kernel.clocks[request["timed"]], lambda: kernel.function(*arguments), request["seconds"])
    if kernel.caller is not None:
        kernel.caller.take()
    synchronize(memory)
    return {"calls": calls}


def _enter(kernel: Solution, timed: str | None, arguments: list[Any]) -> Any:
    """Call on the default stream, and be on it again afterwards."""
    caller = kernel.caller
    if caller is not None:
        caller.take()
    if timed:
        result = timed_benchmark(kernel.clocks[timed], kernel.function, arguments)
    else:
        if caller is not None:
            caller.hold_back()
        result = kernel.function(*arguments)
    if caller is not None:
        caller.take()
    return result


def _snapshot(
    outputs: list[dict[str, Any]],
    targets: list[torch.Tensor],
    memory: Memory,
    copy: Callable[[int, int, int], Any],
) -> list[results.Problem]:
    """Copy the destinations as they are now on the caller's stream; by address, past anything done to torch."""
    problems = []
    for output, target in zip(outputs, targets, strict=True):
        copy(memory.address(output["snap"]), memory.address(output["live"]), output["bytes"])
        if output["bytes"] and results.address_of(target) != memory.address(output["live"]):
            text = f"{output['name']}: the destination's storage was replaced; write into the tensor passed"
            problems.append(["swapped", output["name"], text])
    return problems


def timed_benchmark(clock: Clock, function: Callable[..., Any], arguments: list[Any]) -> Any:
    """Call under the clock; plainly named, so that a solution that behaves otherwise for a benchmark shows it."""
    with clock.span():
        return function(*arguments)


def _collect(
    result: object, request: Mapping[str, Any], memory: Memory, before: Held
) -> tuple[Held, list[str], list[results.Problem]]:
    """Copy returned values into their snapshots; returns the values, the outputs left out and what is wrong."""
    outputs = request["outputs"]
    found, problems = results.pair(result, outputs)
    if problems:
        return [], [], problems
    problems = results.check(found, outputs, memory.device)
    bad = {name for _, name, _ in problems}
    held = [(each, found[each["name"]]) for each in outputs if each["name"] in found and each["name"] not in bad]
    for output, value in held:
        write(memory, output["snap"], value)
    earlier = {results.storage_of(value) for _, value in before} - {0}
    for output, value in held:
        problems += _aliases(output, value, request["inputs"], memory, earlier)
    return held, [output["name"] for output in outputs if output["name"] not in found], problems


def _aliases(
    output: Mapping[str, Any], value: object, inputs: list[dict[str, Any]], memory: Memory, earlier: set[int]
) -> list[results.Problem]:
    name, storage = output["name"], results.storage_of(value)
    owners = [each["name"] for each in inputs if "slot" in each and memory.address(each["slot"]) == storage]
    if output["inplace"] in owners:
        return []
    if storage in earlier:
        text = f"{name}: returned the storage of an earlier result, whose values change under its owner"
        return [["reused", name, text]]
    if not memory.base <= storage < memory.base + memory.size:
        return []
    return [["alias", name, f"{name}: shares memory with the input {owners[0] if owners else ''}".rstrip()]]


def _argument(spec: Mapping[str, Any], memory: Memory) -> Any:
    if "slot" in spec:
        return memory.tensor(spec["slot"])
    return float.fromhex(spec["float"]) if "float" in spec else spec["value"]


def write(memory: Memory, slot: Mapping[str, Any], value: torch.Tensor | float) -> None:
    """Copy a tensor or Python number into a slot of the arena, on the caller's stream."""
    target = memory.tensor(slot)
    with _NO_GRAD():
        if isinstance(value, _TENSOR):
            source = _DETACH(value)
            wanted = DTYPES[slot["dtype"]]
            _COPY(target, source if results.type_of(source) is wanted else _VIEW(source, wanted))
        else:
            _FILL(target, value)


def _reread(kernel: Solution, memory: Memory) -> None:
    """Copy the held results a second time, into the live slots: a result that changed since shows there."""
    for output, value in kernel.held:
        write(memory, output["live"], value)
    synchronize(memory)


def synchronize(memory: Memory) -> None:
    """Wait for the device; raises CudaError for what failed on it meanwhile."""
    if memory.device != "cpu":
        cudart.synchronize()
