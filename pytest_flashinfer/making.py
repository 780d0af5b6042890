"""From workloads and drawn sizes to cases with concrete inputs; what the `inputs` and `cases` fixtures return."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.inputs.axes import solve_axes
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.variant import variant
from pytest_flashinfer.worker.case import Case, shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Workload

Inputs = Callable[[Mapping[str, int], Recipe, "Workload | None"], Mapping[str, Any]]
SMALL_BYTES = 1 << 24  # inputs up to this size are called more often, each time with contents of their own


@dataclass(frozen=True)
class DefaultInputs:
    """The maker that follows the contract; `root` is where the data set's stored tensors lie."""

    definition: Definition
    device: str
    root: Path | None

    def __call__(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None = None) -> Mapping[str, Any]:
        """Return the inputs by name. Raises the errors of inputs/errors.py."""
        return make_inputs(self.definition, axes, recipe, device=self.device, workload=workload, root=self.root)


@dataclass(frozen=True)
class Cases:
    """Makes the cases of one definition. All inputs follow from `seed`, the run's own.

    `inputs` makes them; `default` is what would, had nobody overridden it: what differs is left alone between calls.
    `kinds` says how contents vary; each costs a run of the oracle, once for all solutions.
    """

    definition: Definition
    inputs: Inputs
    default: Inputs
    seed: int
    kinds: tuple[str, ...]

    def first(self, workload: Workload) -> Case:
        """Return the first case of a listed workload. Raises the errors of inputs/errors.py."""
        recipe = _recipe_of(workload) or Recipe(self._derive(workload.uuid))
        return self._case(solve_axes(self.definition, workload.axes), recipe, workload)

    def drawn(self, axes: Mapping[str, int], recipe: Recipe, *, repeat: bool = True) -> list[Case]:
        """Return the case of drawn sizes; to `repeat`, one with other contents and the first elsewhere as well."""
        first = self._case(axes, recipe, None)
        if not repeat:
            return [first]
        return [first, *self._variants(first, ("same_ends",)), first.elsewhere()]

    def repeated(self, workload: Workload) -> list[Case]:
        """Return a workload's cases: fresh contents, contents that look alike, then the first again elsewhere."""
        first = self.first(workload)
        kinds = self.kinds if first.nbytes <= SMALL_BYTES else self.kinds[:1]
        return [first, *self._variants(first, kinds), first.elsewhere()]

    def timed(self, workload: Workload, rounds: int) -> Iterator[Case]:
        """Yield `rounds` cases, none with the contents of the one before; small ones with contents not seen before."""
        case = first = self.first(workload)
        own = self._own(case)
        (other,) = self._variants(first, self.kinds[:1])
        for number in range(rounds):
            if first.nbytes > SMALL_BYTES:
                yield (other, first)[number % 2]
            else:
                case = self._variant(case, "fresh", f"timed {number}", own)
                yield case

    def _case(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None) -> Case:
        values = self.inputs(axes, recipe, workload)
        return Case(self.definition, axes, recipe, values, shapes_of(self.definition, axes), workload=workload)

    def _variants(self, first: Case, kinds: tuple[str, ...]) -> Iterator[Case]:
        case, own = first, self._own(first)
        for number, kind in enumerate(kinds):
            case = self._variant(case, kind, f"{number} {kind}", own)
            yield case

    def _own(self, case: Case) -> frozenset[str]:
        """Return the inputs that an override made: only it knows what else they could hold."""
        if self.inputs == self.default:
            return frozenset()
        try:
            usual = self.default(case.axes, case.recipe, case.workload)
        except InputsError:
            return frozenset(case.values)
        return frozenset(name for name, value in case.values.items() if not _same(value, usual[name]))

    def _variant(self, case: Case, kind: str, name: str, own: frozenset[str]) -> Case:
        if own and own >= case.values.keys():
            recipe = replace(case.recipe, seed=self._derive(f"{case.recipe.seed} {name}"))
            return case.with_values(self.inputs(case.axes, recipe, case.workload), name)
        device = next((value.device for value in case.values.values() if isinstance(value, torch.Tensor)), "cpu")
        generator = torch.Generator(device).manual_seed(self._derive(f"{case.recipe.seed} {name}"))
        return case.with_values(variant(case.values, self.definition, kind, generator, keep=own), name)

    def _derive(self, what: str) -> int:
        """Return a seed of 32 bits that follows from the run's seed and a purpose."""
        text = f"{self.seed} {self.definition.name} {what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _same(value: Any, other: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(value) is type(other) and bool(value == other)
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    return torch.equal(*(each.contiguous().flatten().view(torch.uint8) for each in (value, other)))


def _recipe_of(workload: Workload) -> Recipe | None:
    """Return the recipe that a saved failure carries."""
    record = workload.extra.get("recipe")
    return Recipe.from_json(record) if isinstance(record, dict) else None
