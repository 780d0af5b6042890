"""Runs a solution's worker on given inputs and says what it produced and what it must not have done.

One call: the inputs are laid into the shared arena between guard zones, the outputs are poisoned, the worker calls,
and the judge looks at its own memory. Values are judged elsewhere.
"""

from __future__ import annotations

import contextlib
import random
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from pytest_flashinfer.worker import poison, replies, unwritten
from pytest_flashinfer.worker.errors import WorkerDied, WorkerError
from pytest_flashinfer.worker.layout import Output, plan
from pytest_flashinfer.worker.memory import Arena
from pytest_flashinfer.worker.pristine import Pristine, Violation, differ
from pytest_flashinfer.worker.replies import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flashinfer.worker.client import Worker

__all__ = ["Cache", "Output", "RunResult", "Runner", "Value", "Violation"]
Cache = Literal["cold", "warm"]
_UNUSABLE = frozenset({"count", "shape", "dtype", "type", "device"})
_LATE = "{} changed after the call had returned: its work was not complete on the caller's stream"


@dataclass
class RunResult:
    """What one call produced.

    `outputs` are private copies on the judge's device (views of the arena, good until the next call, where the arena
    is larger than `pristine.IMAGE_LIMIT`); an output that was not returned in the declared form is not among them.
    `violations` is empty for a call that kept the rules; a late change that shows only during the next call is added
    to it then. `unwritten` says which part of an output still holds poison, also where that proves nothing by itself.
    `missing` are optional outputs that were left out. Seconds are of the call alone; `device_seconds`, `kernels` and
    `late` come with timed calls, once `Runner.read_clock` was called. `log` is what the worker printed.
    """

    outputs: dict[str, torch.Tensor]
    violations: list[Violation]
    unwritten: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    host_seconds: float = 0.0
    device_seconds: float | None = None
    kernels: tuple[str, ...] = ()
    log: str = ""


class Runner:
    """Calls one worker again and again on the same storage.

    `device` is the judge's name for the card (`"cpu"`, `"cuda:N"`). `destination` says how the solution was built.
    Every method may raise the errors of errors.py; after CallFailed the runner can go on.
    """

    def __init__(self, worker: Worker, device: str, *, destination: bool = True) -> None:
        self.worker = worker
        self.device = device
        self.destination = destination
        self.arena = Arena(device)
        self._rng = random.Random(secrets.randbits(64))  # noqa: S311 - seeded from the system's own randomness
        self._key: object = None
        self._pristine: Pristine | None = None
        self._last: RunResult | None = None
        self._timed: list[tuple[str, RunResult]] = []

    def run(
        self,
        inputs: Mapping[str, Value],
        outputs: Sequence[Output],
        *,
        timeout: float = 60.0,
        cache: Cache | None = None,
        may_modify: Iterable[str] = (),
    ) -> RunResult:
        """Call the solution once. With `cache` the call is timed, on a cold or warm cache.

        `may_modify` names inputs that the definition lets a call write to; `read_input` returns them afterwards.
        """
        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        pristine = self._prepare(tensors, outputs)
        late = self._late(pristine) if self._last is not None and self.destination else []
        pristine.fill(tensors)
        self._synchronize()
        self.worker.take_log()
        reply = self.worker.call(self._request(inputs, outputs, cache), timeout)
        result = self._collect(pristine, outputs, reply, frozenset(may_modify), late)
        if cache is not None:
            self._timed.append((cache, result))
        return result

    def run_many(
        self, contents: Iterable[Mapping[str, Value]], outputs: Sequence[Output], **options: Any
    ) -> list[RunResult]:
        """Call the solution once for each of `contents`, all of one shape, on the same storage; options as in `run`.

        Contents reach the worker one at a time, so that no call can work ahead for the next. Timed calls have their
        device times filled in; late changes of every call are looked for.
        """
        results = [self.run(inputs, outputs, **options) for inputs in contents]
        self.settle()
        self.read_clock()
        return results

    def settle(self, timeout: float = 60.0) -> list[Violation]:
        """Look once more whether the last call's results changed since; what is found joins its violations."""
        if self._last is None or self._pristine is None:
            return []
        self.worker.call({"do": "reread"}, timeout)
        last, known = self._last, len(self._last.violations)
        self._note_late(last, [bool(flag) for flag in self._late(self._pristine)])
        return last.violations[known:]

    def read_clock(self, timeout: float = 60.0) -> None:
        """Fill in the device times of the timed calls since the last reading."""
        for cache in sorted({cache for cache, _ in self._timed}):
            reply = self.worker.call({"do": "clock", "cache": cache}, timeout)
            spans = [span for span in replies.as_list(reply.get("spans")) if isinstance(span, dict)]
            results = [result for used, result in self._timed if used == cache]
            if len(spans) != len(results):
                raise WorkerDied("sent garbage: not one span for each timed call", self.worker.take_log())
            for result, span in zip(results, spans, strict=True):
                result.device_seconds = replies.seconds(span, "seconds")
                result.kernels = tuple(map(str, replies.as_list(span.get("kernels"))))
        self._timed.clear()

    def read_input(self, name: str) -> torch.Tensor:
        """Return a copy of an input as the last call left it."""
        assert self._pristine is not None
        return self._pristine.layout.inputs[name].tensor_of(self.arena.data).clone()

    def close(self) -> None:
        """Give the arena back. The worker is closed by its owner."""
        self._pristine = self._last = None
        if self.worker.alive:
            with contextlib.suppress(WorkerError):
                self._let_go()
        self.arena.close()

    def _let_go(self) -> None:
        """Have a card's memory closed in the worker before it is freed here, as CUDA demands."""
        if self.device != "cpu" and self.arena.data.numel():
            self.worker.unshare()

    def _prepare(self, tensors: Mapping[str, torch.Tensor], outputs: Sequence[Output]) -> Pristine:
        signature = tuple((name, each.shape, each.stride(), each.dtype) for name, each in tensors.items())
        key = (signature, tuple(outputs))
        if self._pristine is None or key != self._key:
            layout = plan(tensors, outputs)
            self._pristine = self._last = None
            if layout.total > self.arena.data.numel():
                self._let_go()
                self.arena.reserve(layout.total)
                self.worker.share(self.arena)
            self._pristine, self._key = Pristine(layout, self.arena.data, self._rng), key
        return self._pristine

    def _request(self, inputs: Mapping[str, Value], outputs: Sequence[Output], cache: str | None) -> dict[str, Any]:
        assert self._pristine is not None
        layout = self._pristine.layout
        arguments = [
            {"name": name, "slot": layout.inputs[name].message()}
            if name in layout.inputs
            else replies.argument(name, value)
            for name, value in inputs.items()
        ]
        results = [
            {
                "name": output.name,
                "live": layout.live[output.name].message(),
                "snap": layout.snap[output.name].message(),
                "bytes": layout.live[output.name].extent,
                "scalar": output.scalar,
                "optional": output.optional,
                "also": [str(dtype) for dtype in output.also],
                "inplace": output.inplace,
            }
            for output in outputs
        ]
        return {"do": "call", "inputs": arguments, "outputs": results, "timed": cache}

    def _collect(
        self,
        pristine: Pristine,
        outputs: Sequence[Output],
        reply: Mapping[str, Any],
        may_modify: frozenset[str],
        late_before: list[torch.Tensor],
    ) -> RunResult:
        problems = replies.problems(reply)
        missing = tuple(str(name) for name in replies.as_list(reply.get("missing")))
        bad = {violation.tensor for violation in problems if violation.kind in _UNUSABLE}
        names = [each.name for each in outputs if each.name not in bad and each.name not in missing and "" not in bad]
        changed, unfinished = pristine.changes(may_modify), self._late(pristine)
        poisoned = [self._poisoned(pristine, name).any() for name in names]
        copies = {name: self._copy(pristine, name) for name in names}
        flags = torch.stack([*late_before, *changed, *unfinished, *poisoned]).tolist()
        if self._last is not None:
            self._note_late(self._last, flags[: len(late_before)])
        flags = flags[len(late_before) :]
        result = RunResult(copies, problems, missing=missing, host_seconds=replies.seconds(reply, "host_seconds"))
        if any(flags[: len(changed)]):
            result.violations += pristine.explain(may_modify)
        self._note_late(result, flags[len(changed) : len(changed) + len(unfinished)], names)
        for name, flag in zip(names, flags[len(changed) + len(unfinished) :], strict=True):
            if flag:
                self._note_unwritten(pristine, result, name)
        result.log = self.worker.take_log()
        self._last = result
        return result

    def _late(self, pristine: Pristine) -> list[torch.Tensor]:
        """For each output, whether its live buffer and its snapshot differ now."""
        base, layout = self.arena.data, pristine.layout
        return [differ(slot.bytes_of(base), layout.snap[name].bytes_of(base)) for name, slot in layout.live.items()]

    def _note_late(self, result: RunResult, flags: Sequence[bool], among: Iterable[str] | None = None) -> None:
        assert self._pristine is not None
        named = set(result.outputs if among is None else among)
        for name, flag in zip(self._pristine.layout.live, flags, strict=False):
            if flag and name in named and not any(v.kind == "late" and v.tensor == name for v in result.violations):
                result.violations.append(Violation("late", name, _LATE.format(f"output {name}")))

    def _poisoned(self, pristine: Pristine, name: str) -> torch.Tensor:
        slot = pristine.layout.snap[name]
        return slot.words_of(self.arena.data, poison.word_type(slot.dtype)) == pristine.poison[name]

    def _note_unwritten(self, pristine: Pristine, result: RunResult, name: str) -> None:
        result.unwritten[name] = unwritten.describe(self._poisoned(pristine, name))
        if poison.is_certain(pristine.layout.snap[name].dtype):
            text = f"output {name}: {result.unwritten[name]}"
            result.violations.append(Violation("unwritten", name, text))

    def _copy(self, pristine: Pristine, name: str) -> torch.Tensor:
        slot = pristine.layout.snap[name]
        if slot.dtype is torch.bool:  # a kernel may store any non-zero byte
            return slot.words_of(self.arena.data, torch.uint8) != 0
        made = slot.tensor_of(self.arena.data)
        return made.clone() if pristine.whole else made

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
