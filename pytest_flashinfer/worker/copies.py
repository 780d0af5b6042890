"""Copies of what a call produced, made for the judge beside foreign code; all that they use is bound at import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.worker import results
from pytest_flashinfer.worker.memory import DTYPES, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TENSOR = torch.Tensor
_COPY = torch.Tensor.copy_
_DETACH = torch.Tensor.detach
_VIEW = torch.Tensor.view
_FILL = torch.Tensor.fill_
_NO_GRAD = torch.no_grad
Held = list[tuple[Mapping[str, Any], Any]]  # outputs as requested, with the values returned for them
Copied = tuple[Held, list[str], list[results.Problem]]  # what is kept, the outputs left out and what is wrong


def snapshot(places: Iterable[Mapping[str, Any]], memory: Memory, copy: Callable[[int, int, int], Any]) -> None:
    """Copy places as they are now on the caller's stream; by address, past anything done to torch."""
    for place in places:
        copy(memory.address(place["snap"]), memory.address(place["live"]), place["bytes"])


def swapped(outputs: list[dict[str, Any]], targets: list[torch.Tensor], memory: Memory) -> list[results.Problem]:
    """Name the destinations that have become other tensors."""
    problems = []
    for output, target in zip(outputs, targets, strict=True):
        if output["bytes"] and results.address_of(target) != memory.address(output["live"]):
            text = f"{output['name']}: the destination's storage was replaced; write into the tensor passed"
            problems.append(["swapped", output["name"], text])
    return problems


def collect(result: object, request: Mapping[str, Any], memory: Memory, before: Held) -> Copied:
    """Copy returned values into their snapshots. An input that was returned as what is written into it is left out."""
    outputs = request["outputs"]
    found, problems = results.pair(result, outputs)
    if problems:
        return [], [], problems
    problems = results.check(found, outputs, memory.device)
    bad = {name for _, name, _ in problems}
    for name, slot in ((each["name"], each["live"]) for each in request["written"] if each["name"] not in bad):
        if results.lies_in(found.get(name), slot, memory.address(slot)):
            del found[name]
    held = [(each, found[each["name"]]) for each in outputs if each["name"] in found and each["name"] not in bad]
    for output, value in held:
        write(memory, output["snap"], value)
    earlier = [results.span_of(value) for _, value in before]
    for output, value in held:
        problems += _aliases(output, value, request["inputs"], memory, earlier)
    return held, [output["name"] for output in outputs if output["name"] not in found], problems


def _aliases(
    output: Mapping[str, Any], value: object, inputs: list[dict[str, Any]], memory: Memory, earlier: list[range]
) -> list[results.Problem]:
    name, storage = output["name"], results.storage_of(value)
    owners = [each["name"] for each in inputs if "slot" in each and memory.address(each["slot"]) == storage]
    if output["inplace"] in owners:
        return []
    if memory.base <= storage < memory.base + memory.size:  # also where an earlier result did
        return [["alias", name, f"{name}: shares memory with the input {owners[0] if owners else ''}".rstrip()]]
    own = results.span_of(value)
    if any(own.start < other.stop and other.start < own.stop for other in earlier):
        text = f"{name}: returned the memory of an earlier result, whose values change under its owner"
        return [["reused", name, text]]
    return []


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
