"""The judge's end of the oracle: lays inputs into an arena, asks the reference's worker, reads the truth back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.mutated_inputs import MutatedInputs
from pytest_flashinfer.judge.oracle.packing import Packing, listed, widest
from pytest_flashinfer.judge.oracle.protocol import DRAWN, PARTS
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, Truth
from pytest_flashinfer.worker.arena import Arena

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.worker.client import Worker
    from pytest_flashinfer.worker.pending import Begun

HANDLER = "pytest_flashinfer.judge.oracle.handler"


class Oracle:
    """Asks one worker (handler `HANDLER`) about one reference, again and again on the same storage.

    Methods may raise the errors of the worker floor; `CallFailed` of kind "reference" means that the reference itself
    failed. `mutated` learns which inputs it writes into, each time at the price of a second question.
    """

    def __init__(self, worker: Worker, device: str, mutated: MutatedInputs | None = None) -> None:
        self.worker = worker
        self.device = device
        self.mutated = mutated or MutatedInputs()
        self.arena = Arena(device)
        self._host = Arena("cpu")  # for questions that the host answers, whatever the device
        self._begun: _Question | None = None

    def build(  # noqa: PLR0913 - all but two have defaults
        self,
        reference: str,
        folder: Path,
        *,
        entry: str = "run",
        style: str = "return",
        hooks: Mapping[str, Any] | None = None,
        timeout: float = 120,
    ) -> None:
        """Load the reference's source in the worker; `hooks` as `errands.describe` makes them."""
        request = {"reference": reference, "entry": entry, "style": style, "hooks": hooks}
        self.worker.build(request, folder, timeout)

    def ask(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, OutputSpec],
        *,
        timeout: float = 120,
        host: bool = False,
        **options: Any,
    ) -> Truth:
        """Return the truth for these inputs, lying where they do; `options` as in `evaluate`.

        With `host` it is found on the host. Then the card is not asked for anything: it turns from one process to
        another in a millisecond or more.
        """

        def asked() -> Truth:
            begun, self._begun = self._begun, None
            if begun is None or begun.inputs is not inputs:
                begun = self._asked(inputs, outputs, timeout=timeout, host=host, **options)
            found = self._truth(outputs, begun.request.reply(), begun.packing, begun.arena)
            home = next((x.device for x in inputs.values() if isinstance(x, torch.Tensor)), None)
            found = replace(found, outputs={name: copied(each, home) for name, each in found.outputs.items()})
            begun.arena.leave(self.worker)
            return found

        return self.mutated.settled(inputs, asked)

    def begin(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, OutputSpec], *, timeout: float = 120, **options: Any
    ) -> None:
        """Begin to find what `ask` will be asked for next with the very same arguments, on the host.

        What was begun before goes on where it is about the same inputs, and is dropped otherwise.
        """
        if self._begun is not None and self._begun.inputs is inputs:
            return
        self._begun = None
        self._begun = self._asked(inputs, outputs, timeout=timeout, host=True, **options)

    def _asked(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, OutputSpec],
        *,
        timeout: float,
        host: bool,
        **options: Any,
    ) -> _Question:
        packing = Packing()
        arguments = [packing.argument(name, value) for name, value in inputs.items()]
        ids = widest(inputs) if options.get("sampling") else 0
        parts = PARTS if options.get("bounded", True) else ("native",)
        drawn: dict[str, Any] = {"ids": ids, "listed": listed(inputs)} if ids else {}
        wanted = [packing.output(name, spec, parts=parts, **drawn) for name, spec in outputs.items()]
        arena = self._host if host and self.device != "cpu" else self.arena
        self._place(arena, packing, inputs)
        message = {"inputs": arguments, "outputs": wanted, "host": host, "mutated": self.mutated.listed, **options}
        return _Question(inputs, packing, arena, self.worker.begin(message, timeout))

    def ask_rows(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, OutputSpec],
        part: slice,
        *,
        timeout: float = 120,
        **options: Any,
    ) -> Truth | None:
        """Return the truth about some rows, lying in the arena until the next question; `None` where there is none.

        `options` as in `evaluate`, and `rows`, `case` and `last` as handler.py says.
        """
        packing = Packing()
        arguments = [packing.argument(name, value) for name, value in inputs.items()]
        parts = ("native",) if options.get("native") else PARTS
        wanted = [packing.output(name, spec, part, parts=parts) for name, spec in outputs.items()]
        request = {"do": "rows", "inputs": arguments, "outputs": wanted, "part": [part.start, part.stop], **options}
        reply = self._call(packing, inputs, request, timeout)
        return self._truth(outputs, reply, packing, self.arena) if reply["independent"] else None

    def shapes(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, OutputSpec], *, seed: int, timeout: float = 120
    ) -> list[Any]:
        """Return what the reference says of each output in order: `{"size", "dtype"}`, untrusted, or `None`."""
        packing = Packing()
        arguments = [packing.argument(name, value) for name, value in inputs.items()]
        wanted = [{"name": name, "optional": spec.optional, "param": spec.param} for name, spec in outputs.items()]
        request = {"do": "shapes", "inputs": arguments, "outputs": wanted, "seed": seed}
        return list(self._call(packing, inputs, request, timeout)["outputs"])

    def _call(
        self, packing: Packing, inputs: Mapping[str, Any], request: Mapping[str, Any], timeout: float
    ) -> Mapping[str, Any]:
        def asked() -> Mapping[str, Any]:
            self.place(packing, inputs)
            return self.worker.call({**request, "mutated": self.mutated.listed}, timeout)

        return self.mutated.settled(inputs, asked)

    def place(self, packing: Packing, values: Mapping[str, Any]) -> None:
        """Copy tensors into the slots of their names, in an arena that is large enough for all slots."""
        self._place(self.arena, packing, values)

    def close(self) -> None:
        """Give the memory back. The worker is closed by its owner."""
        self.arena.close()
        self._host.close()

    def _place(self, arena: Arena, packing: Packing, values: Mapping[str, Any]) -> None:
        self.worker.finish()  # what it is at lies there
        self.worker.fit(arena, packing.end)
        for name, slot in packing.slots.items():
            if name in values:
                slot.tensor_of(arena.data).copy_(values[name])
        if arena.device != "cpu":
            torch.cuda.synchronize(arena.device)

    @staticmethod
    def _truth(outputs: Mapping[str, OutputSpec], reply: Mapping[str, Any], packing: Packing, arena: Arena) -> Truth:
        """Read what a reply says was written; the arena is overwritten by the next question."""
        facts = {str(each["name"]): each for each in reply["outputs"]}
        truths = {name: _read(name, spec, facts[name], packing, arena.data) for name, spec in outputs.items()}
        notes = tuple(map(str, reply["notes"]))
        return Truth(truths, str(reply["how"]), bool(reply["nan_inputs"]), notes, dict(reply["seconds"]))


@dataclass(frozen=True, eq=False)
class _Question:
    """A truth that the worker is asked for: about which inputs, and where it will lie."""

    inputs: Mapping[str, Any]
    packing: Packing
    arena: Arena
    request: Begun


def copied(output: OutputTruth, device: torch.device | None = None) -> OutputTruth:
    """Return an output whose tensors are nobody else's, and lie on `device`; `None` is where they are."""
    found = {part: x for part in PARTS if (x := getattr(output, part)) is not None}
    parts: dict[str, Any] = {part: x.to(device or x.device, copy=True) for part, x in found.items()}
    return replace(output, **parts)


def _read(name: str, spec: OutputSpec, facts: Mapping[str, Any], packing: Packing, base: torch.Tensor) -> OutputTruth:
    parts: dict[str, torch.Tensor | None] = {}
    for part in PARTS:
        slot = packing.slots.get(f"{name}\0{part}")
        parts[part] = slot.tensor_of(base) if slot is not None and facts[part] else None
    for part in DRAWN:
        table = parts[part]
        parts[part] = None if table is None else table[: len(table) // int(facts["times"])]
    return OutputTruth(
        name,
        spec.dtype,
        parts["native"],
        parts["wide"],
        parts["allowance"],
        parts["undecided"],
        how=str(facts["how"]),
        exact=bool(facts["exact"]),
        widened=float(facts["widened"]),
        replaced=None if facts["replaced"] is None else int(facts["replaced"]),
        held=parts["held"],
        reach=parts["reach"],
        disputed=int(facts["disputed"]),
        probabilities=parts["probabilities"],
        support=parts["support"],
        times=int(facts["times"]),
        distinct=bool(facts["distinct"]),
        ids=parts["ids"],
        seeded=bool(facts["seeded"]),
        notes=tuple(map(str, facts["notes"])),
    )
