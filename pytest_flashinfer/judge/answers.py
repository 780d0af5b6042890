"""The truths of one definition's cases: the reference is asked once for all solutions, in a process of its own."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.inputs.dtypes import is_packed
from pytest_flashinfer.judge.asking import HANDLER, Oracle
from pytest_flashinfer.judge.truth import OutputSpec, Truth
from pytest_flashinfer.worker.errors import WorkerDied, WorkerError, WorkerTimedOut
from pytest_flashinfer.worker.kernel import cache_folder

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.pool import Pool

KEPT_BYTES = 1 << 28  # of truths that are kept for the next solution
_PARTS = ("native", "wide", "allowance", "undecided")


class ReferenceFailed(Exception):  # noqa: N818 - says what happened
    """There is no truth about a case: the reference raised, crashed, hung or broke its own contract."""


class Answers:
    """Truths by case. The reference's worker is started when first needed and anew when it dies.

    `timeout` in seconds for one answer, `budget` in bytes for the wide copies that the oracle makes of a case.
    """

    def __init__(
        self, pool: Pool, definition: Definition, *, timeout: float, operands: str = "working", budget: int | None = None
    ) -> None:
        self.pool = pool
        self.definition = definition
        self.timeout = timeout
        self.options = {"operands": operands, "budget": budget}
        self._oracle: Oracle | None = None
        self._kept: OrderedDict[tuple[Any, ...], Truth | ReferenceFailed] = OrderedDict()
        self._bytes = 0

    def answer(self, case: Case) -> Truth:
        """Return the truth about a case. Raises ReferenceFailed."""
        found = self._kept.get(case.key)
        if found is None:
            found = self._ask(case)
            self._keep(case.key, found)
        self._kept.move_to_end(case.key)
        if isinstance(found, ReferenceFailed):
            raise found
        return found

    def close(self) -> None:
        """End the worker and forget all truths."""
        self._kept.clear()
        self._drop()

    def _keep(self, key: tuple[Any, ...], found: Truth | ReferenceFailed) -> None:
        self._kept[key] = found
        self._bytes += _size(found)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size(dropped)

    def _ask(self, case: Case) -> Truth | ReferenceFailed:
        if self.definition.reference is None:
            return ReferenceFailed(f"{self.definition.name} has no reference")
        try:
            seed = case.recipe.seed & 0xFFFFFFFF
            return self._live().ask(case.values, _specs(case), timeout=self.timeout, seed=seed, **self.options)
        except (WorkerDied, WorkerTimedOut) as error:
            self._drop()
            return ReferenceFailed(f"the reference's process: {error.detail}")
        except WorkerError as error:
            return ReferenceFailed(error.detail)

    def _live(self) -> Oracle:
        if self._oracle is None or not self._oracle.worker.alive:
            self._drop()
            oracle = Oracle(self.pool.worker(HANDLER), self.pool.device)
            self._oracle = oracle
            assert self.definition.reference is not None
            oracle.build(
                self.definition.reference,
                cache_folder() / "references",
                entry=self.definition.entry,
                style=self.definition.reference_style,
                timeout=self.timeout,
            )
        return self._oracle

    def _drop(self) -> None:
        if self._oracle is not None:
            self._oracle.close()
            self._oracle.worker.close()
        self._oracle = None


def _specs(case: Case) -> dict[str, OutputSpec]:
    specs = {}
    for name, declared in case.definition.outputs.items():
        shape = case.shapes[name]
        if is_packed(declared.dtype) and shape:
            shape = (*shape[:-1], 2 * shape[-1])
        elements = None if declared.shape is None else shape
        specs[name] = OutputSpec(declared.dtype, elements, declared.optional, declared.param)
    return specs


def _size(found: Truth | ReferenceFailed) -> int:
    if isinstance(found, ReferenceFailed):
        return 0
    tensors = (getattr(output, part) for output in found.outputs.values() for part in _PARTS)
    return sum(each.nbytes for each in tensors if each is not None)
