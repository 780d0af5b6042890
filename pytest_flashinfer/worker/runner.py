"""Runs a solution's worker on given inputs and says what it produced and what it must not have done.

One call: the inputs are laid into the shared arena between guard zones, the outputs are poisoned, the worker calls,
and the judge looks at its own memory. Values are judged elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import time
from typing import TYPE_CHECKING, Any, Literal

import torch

from pytest_flashinfer.worker import produced, replies
from pytest_flashinfer.worker.arena import Arena, InputPieces
from pytest_flashinfer.worker.call_request import Value, call_request
from pytest_flashinfer.worker.errors import WorkerDied, WorkerError
from pytest_flashinfer.worker.flags import read_all
from pytest_flashinfer.worker.guarded_memory import Pristine, pristine_of
from pytest_flashinfer.worker.guards import Violation
from pytest_flashinfer.worker.layout import Output, plan
from pytest_flashinfer.worker.outcome import MALFORMED, RunResult
from pytest_flashinfer.worker.processor_time import ProcessorTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flashinfer.worker.client import Worker
    from pytest_flashinfer.worker.layout import Layout

__all__ = ["Cache", "Output", "RunResult", "Runner", "Value", "Violation"]
Cache = Literal["cold", "warm"]
READ_SECONDS = 60.0  # for what no code of a solution takes part in
WARM_SECONDS = 0.02  # of calls ahead of a measurement
# Bytes by which a moved call's tensors are apart from another call's. Their addresses are odd multiples of 128: those
# of whole tensors are multiples of 256, those of a tensor's parts need not be.
SHIFT = (1 << 16) + 128


class Runner:
    """Calls one worker again and again on the same storage.

    `device` is the judge's name for the card (`"cpu"`, `"cuda:N"`). `destination` says how the solution was built.
    `inputs` is the memory of a card that it shares with others for their inputs.
    Every method may raise the errors of errors.py; after CallFailed the runner can go on.
    """

    def __init__(
        self, worker: Worker, device: str, inputs: InputPieces | None = None, *, destination: bool = True
    ) -> None:
        self.worker = worker
        self.device = device
        self.destination = destination
        self.arena = Arena(device, inputs)
        self._rng = random.Random(secrets.randbits(64))  # noqa: S311 - seeded from the system's own randomness
        self._key: object = None
        self._asked: tuple[Layout, tuple[object, ...]] | None = None  # what the worker was asked to call last
        self._pristine: Pristine | None = None
        self._last: RunResult | None = None
        self._written: list[str] = []  # the outputs of the last call whose values lie in an input
        self._timed: list[tuple[str, RunResult]] = []

    def run(  # noqa: PLR0913 - each is a choice of its own
        self,
        inputs: Mapping[str, Value],
        outputs: Sequence[Output],
        *,
        timeout: float = 60.0,
        cache: Cache | None = None,
        keep: bool = True,
        moved: bool = False,
    ) -> RunResult:
        """Call the solution once. With `cache` the call is timed, on a cold or warm cache.

        A call may write to the inputs that outputs name as `inplace`, and to no others. With `keep` off the outputs are
        not copied: they are views of the arena, good until the next call, which the worker can still write to. With
        `moved` all tensors lie at other addresses than without.
        """
        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        pristine = self._prepare(tensors, outputs, SHIFT if moved else 0)
        since = self._since()
        last, self._last = self._last, None
        self.arena.claim()
        pristine.fill(tensors)
        self._synchronize()
        self.worker.take_log()
        before, start = self._processor_time(cache), time.perf_counter()
        reply = self.worker.call(self._question(inputs, outputs, cache), timeout)
        round_trip, after = time.perf_counter() - start, self._processor_time(cache)
        result, changed = self._collect(pristine, reply, since, keep=keep)
        result.round_trip, result.processor = round_trip, before.until(after)
        result.compiled = replies.compilations(reply)
        if last is not None:
            last.add_late(changed)
        if cache is not None:
            self._timed.append((cache, result))
        return result

    def warm(self, inputs: Mapping[str, Value], outputs: Sequence[Output], cache: Cache, timeout: float = 60.0) -> None:
        """Have the solution called until its times settle; nobody looks at what these calls produce."""
        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        pristine = self._prepare(tensors, outputs, 0)
        self._last = None
        self._timed = [each for each in self._timed if each[0] != cache]  # their times are read with those of these
        self.arena.claim()
        pristine.fill(tensors)
        self._synchronize()
        request = {**self._request(inputs, outputs, cache), "do": "warm", "seconds": WARM_SECONDS}
        self.worker.call(request, timeout + WARM_SECONDS)

    def settle(self) -> list[Violation]:
        """Look once more whether the last call's results changed since; what is found joins its violations.

        So does what the worker finds wrong with itself.
        """
        if self._last is None or self._pristine is None:
            return []
        reply = self.worker.call({"do": "reread"}, READ_SECONDS)
        self._pristine.look()
        last, known = self._last, len(self._last.violations)
        last.violations += replies.problems(reply)
        last.add_late(_true(self._changed(self._pristine, self._pristine.layout.live)))
        return last.violations[known:]

    def read_clock(self) -> None:
        """Fill in the device times, in seconds, of the timed calls since the last reading. Raises WorkerDied."""
        for cache in sorted({cache for cache, _ in self._timed}):
            reply = self.worker.call({"do": "clock", "cache": cache}, READ_SECONDS)
            spans = [span for span in replies.as_list(reply.get("spans")) if isinstance(span, dict)]
            kernels = replies.names(reply, "kernels")
            results = [result for used, result in self._timed if used == cache]
            if len(spans) != len(results):
                raise WorkerDied("sent garbage: not one span for each timed call", self.worker.take_log())
            for result, span in zip(results, spans, strict=True):
                result.span = replies.span(span, kernels)
                result.violations += replies.no_time({"host_seconds": None, "seconds": None, **span})
                if result.span.late:
                    result.add_late(result.outputs)
        self._timed.clear()

    def rest(self) -> None:
        """Have no calls for a while: a large arena is given back, the next call makes another."""
        if self.arena.leave(self.worker):
            self._pristine = self._last = None

    def close(self) -> None:
        """Give the arena back. The worker is closed by its owner."""
        self._pristine = self._last = None
        if self.worker.alive:
            with contextlib.suppress(WorkerError):
                self.worker.let_go(self.arena)
        self.arena.close()

    def _prepare(self, tensors: Mapping[str, torch.Tensor], outputs: Sequence[Output], shift: int) -> Pristine:
        signature = tuple((name, each.shape, each.stride(), each.dtype) for name, each in tensors.items())
        key = (signature, tuple(outputs), shift)
        if self._pristine is None or key != self._key:
            if self._last is not None:
                self._last.add_late(_true(self._since()))
            layout = plan(tensors, outputs, shift, destination=self.destination)
            self._pristine = self._last = None
            self.worker.fit(self.arena, layout.total - layout.front, layout.front)
            self._key = key
            self._pristine = pristine_of(layout, self.arena.window(layout.total, layout.front), self._rng)
        return self._pristine

    def _since(self) -> dict[str, torch.Tensor]:
        """Return `produced.late` for the last call's outputs, but for those whose second reading is the worker's."""
        if self._last is None or self._pristine is None:
            return {}
        self._pristine.look()
        return self._changed(self._pristine, self._pristine.layout.live if self.destination else ())

    def _changed(self, pristine: Pristine, own: Iterable[str]) -> dict[str, torch.Tensor]:
        return produced.late(pristine, own, self._written if self.arena.claimed else ())

    def _question(self, inputs: Mapping[str, Value], outputs: Sequence[Output], cache: str | None) -> dict[str, Any]:
        """Return the request for a call; one like the last takes a tenth of the time to say and to understand."""
        assert self._pristine is not None
        asked, self._asked = self._asked, (self._pristine.layout, _plain(inputs))
        if asked is not None and asked[0] is self._asked[0] and asked[1] == self._asked[1]:
            return {"do": "again", "timed": cache}
        return self._request(inputs, outputs, cache)

    def _request(self, inputs: Mapping[str, Value], outputs: Sequence[Output], cache: str | None) -> dict[str, Any]:
        assert self._pristine is not None
        layout = self._pristine.layout
        return call_request(layout, self.arena.front - layout.front, inputs, outputs, cache)

    def _collect(
        self,
        pristine: Pristine,
        reply: Mapping[str, Any],
        before: Mapping[str, torch.Tensor],
        *,
        keep: bool,
    ) -> tuple[RunResult, list[str]]:
        """Return the result, and the outputs of the last call that had changed `before` this one."""
        pristine.look()
        problems = replies.problems(reply)
        missing = replies.names(reply, "missing")
        bad = {violation.tensor for violation in problems if violation.kind in MALFORMED}
        layout = pristine.layout
        names = [name for name in layout.live if not {name, ""} & bad and name not in missing]
        from_input = layout.inplace if self.destination else missing
        self._written = [name for name in layout.inplace if not {name, ""} & bad and name in from_input]
        slots = {name: layout.snap[name] for name in names} | {name: layout.inplace[name][1] for name in self._written}
        copies = {name: produced.copy_of(pristine, slot, keep=keep) for name, slot in slots.items()}
        poison_left = [produced.has_poison(pristine, name) for name in names]
        after = self._changed(pristine, layout.live)
        beside = produced.beside(pristine, names)
        changed, late, poisoned, spoilt, earlier = read_all(
            pristine.changes(), [*after.values()], poison_left, [*beside.values()], [*before.values()]
        )
        result = RunResult(copies, problems, missing=missing, host_seconds=replies.seconds(reply, "host_seconds"))
        result.violations += replies.no_time({"host_seconds": reply.get("host_seconds")})
        if any(changed):
            nowhere = Violation("guard", "", "memory outside the outputs was written while it was being checked")
            result.violations += pristine.explain() or [nowhere]
        result.add_late(itertools.compress(after, late))
        for name, flag in zip(names, poisoned, strict=True):
            if flag:
                produced.note_unwritten(pristine, result, name)
        for name in itertools.compress(beside, spoilt):
            produced.note_spoilt(pristine, result, name)
        result.log = self.worker.take_log()
        self._last = result
        return result, [*itertools.compress(before, earlier)]

    def _processor_time(self, cache: str | None) -> ProcessorTime:
        """Read the worker's where a call on the CPU is timed; a card's events say as much as that."""
        return self.worker.processor_time() if cache is not None and self.device == "cpu" else ProcessorTime()

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


def _plain(inputs: Mapping[str, Value]) -> tuple[object, ...]:
    """Return the arguments that are no tensors, as what tells any two of them apart: True from 1, and 0.0 from -0.0."""
    return tuple((name, repr(value)) for name, value in inputs.items() if not isinstance(value, torch.Tensor))


def _true(flags: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the flags that are true; waits for the device."""
    return [name for name, flag in flags.items() if bool(flag)]
