"""The inputs of a case: made once for all solutions, varied for further calls, left to whoever has overridden them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.cases.cache import InputCache, mark_of
from pytest_flashinfer.cases.default_inputs import tensor_shapes
from pytest_flashinfer.cases.input_makers import Makers
from pytest_flashinfer.data.constants import open_constants, shown
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import IDS
from pytest_flashinfer.inputs.errors import InputsError, Unbound, Unsatisfiable
from pytest_flashinfer.inputs.floats.values import Source
from pytest_flashinfer.inputs.integers.masks import MASKS
from pytest_flashinfer.inputs.integers.rearrange import rearranged
from pytest_flashinfer.inputs.one_changed import one_id
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.seeds import derived, way_of
from pytest_flashinfer.inputs.sizes.axes import solve_axes
from pytest_flashinfer.inputs.stale import POISON
from pytest_flashinfer.inputs.variant import ONE, breaks, variant, varying
from pytest_flashinfer.worker.case import Case, declared, shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_flashinfer.cases.input_makers import Inputs
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.judge.oracle.answers import Answers

ANEW = 0x5EED5EED  # how far the seed of other index tensors is off


@dataclass(frozen=True)
class Contents:
    """Makes complete cases of one definition. All inputs follow from `seed`, the run's own.

    `inputs` makes them; `default` is what would, had nobody overridden it: what differs is left alone between calls.
    `reference` is asked for the shapes that no size decides. `cache` holds inputs for the next solution of the
    definition in `file`: where several have one name, each has inputs of its own.
    """

    definition: Definition
    inputs: Inputs
    default: Inputs
    seed: int
    reference: Answers | None = None
    cache: InputCache = field(default_factory=InputCache)
    file: Path | None = None

    @functools.cached_property
    def _makers(self) -> Makers:
        return Makers(self.definition, self.inputs, self.default)

    def case(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None) -> Case:
        """Return a case with the inputs that its recipe stands for. Raises the errors of inputs/errors.py."""
        waiting = [name for name in open_constants(self.definition) if name not in axes]
        try:
            values = self._once(axes, recipe, workload, "first", lambda: self.inputs(axes, recipe, workload))
            if waiting or self._makers.by_definition:
                axes = solve_axes(self.definition, {**axes, **shown(self.definition, tensor_shapes(values))})
        except Unsatisfiable as error:
            if waiting:
                raise Unbound(f"axis `{waiting[0]}` is a constant without a value: {error}") from error
            raise
        return self._shaped(Case(self.definition, axes, recipe, values, {}, workload=workload))

    def varied(  # noqa: PLR0913 - ways in which contents vary
        self, case: Case, kind: str, name: str, *, shift: bool = False, entire: bool = False, alone: bool = False
    ) -> Case:
        """Return a case of the same sizes with other contents, which follow from `name`; kinds as in variant.py.

        Unless contents are to change entirely, one tensor stays at times where a kind keeps something anyway: answers
        may be kept by that one alone.
        With `shift` index tensors are other ones for as much work, where there are some, as integers/rearrange.py says.
        What an override made stays as it is, unless it made all: then it is asked for more. `alone`: see `_seed`.
        """
        own = self._makers.by_override(case)
        if own and own >= {each for each, value in case.values.items() if value is not None}:
            recipe = replace(case.recipe, seed=self._seed(case, name, alone=alone))
            return self._shaped(case.with_values(self.inputs(case.axes, recipe, case.workload), name))
        if kind == ONE and (index := self._one_id(case, name)):
            return self._shaped(case.with_values({**case.values, **index}, name))
        indices = self._rearranged(case, self.derive(f"{case.recipe.seed} {name}"), shift=True) if shift else {}
        return self._drawn(case, kind, name, indices, entire=entire or kind in {"fresh", ONE}, alone=alone)

    def _seed(self, case: Case, name: str, *, alone: bool) -> int:
        """Return the seed of other contents: of the run, for else who reads a saved line could know them all before.

        Those that `test_sizes` draws follow from their case alone: kept as a line, it fails again whatever the run.
        """
        return derived(case.recipe.seed, name) if alone else self.derive(f"{case.recipe.seed} {name}")

    def _one_id(self, case: Case, name: str) -> Mapping[str, Any]:
        """Return an index tensor with another id in it: by turns with values, and where there are no such."""
        seed = case.recipe.seed
        values = bool(varying(case.values, self.definition))
        if self._fixed(case) or case.recipe.structure in POISON or (values and way_of(seed, "one id", 2)):
            return {}  # another slot may hold what nobody may read
        return self._once(case.axes, case.recipe, case.workload, f"{name} id", lambda: one_id(
            self.definition, case.axes, case.values, seed, _stored(case)
        ))  # fmt: skip

    def rearranged(self, case: Case, *, alone: bool = False) -> Case | None:
        """Return a case whose index tensors are other ones for as much work, where it has such.

        Its other tensors have other values, but for the ends: caches that held what nobody may read are made again.
        `alone`: see `_seed`.
        """
        # Of this case alone, so that a line by which it is kept fails again whatever the run's seed is.
        indices = self._rearranged(case, case.recipe.seed)
        # Where nobody reads, an end may hold what nobody may read; with other indices somebody does.
        kind = "fresh" if case.recipe.structure in POISON else "same_ends"
        return self._drawn(case, kind, "rearranged", indices, alone=alone) if indices else None

    def _rearranged(self, case: Case, seed: int, *, shift: bool = False) -> Mapping[str, Any]:
        """Return index tensors for as much work; none where somebody else makes tensors, who may tie others to them."""
        if self._fixed(case):
            return {}
        return rearranged(self.definition, case.axes, case.values, seed, shift=shift, stored=_stored(case))

    def _fixed(self, case: Case) -> bool:
        others = self._makers.by_override(case) | self._makers.by_definition
        return any(isinstance(case.values[name], torch.Tensor) for name in others)

    def _drawn(  # noqa: PLR0913 - as `varied`
        self, case: Case, kind: str, name: str, indices: Mapping[str, Any], *, entire: bool = True, alone: bool
    ) -> Case:
        keep = self._makers.by_override(case) | self._makers.by_definition | _stored_masks(case)
        device = next((value.device for value in case.values.values() if isinstance(value, torch.Tensor)), "cpu")
        seed = self._seed(case, name, alone=alone)
        # Which value changes follows from the case and not from the run's seed, so that a saved failure fails again.
        generator = Source(case.recipe.seed if kind == ONE else seed, torch.device(device)).own("//other")

        def make() -> Mapping[str, Any]:
            changing = [each for each in varying(case.values, self.definition) if each not in keep]
            stays = set() if entire else _one_at_times(changing, generator)
            drawn = variant(case.values, self.definition, case.axes, kind, generator, keep=keep | stays)
            others = {**indices, **self._makers.made_again(case, seed)}
            whole = {**drawn, **others}
            return drawn if others and breaks(case.values, whole, self.definition, case.axes) else whole

        values = self._once(case.axes, case.recipe, case.workload, name, make)
        return self._shaped(case.with_values(values, name))

    def anew(self, case: Case) -> Case | None:
        """Return a case whose index tensors are other ones as well, where it has any: answers may be kept by shapes."""
        if self._makers.by_definition or not any(map(_is_index, case.values.values())):
            return None
        # Of this case alone, so that a line by which it is kept fails again whatever the run's seed is.
        recipe = case.recipe.with_seed_after(ANEW)
        make = functools.partial(self.inputs, case.axes, recipe, case.workload)
        try:
            values = self._once(case.axes, case.recipe, case.workload, "anew", make)
        except InputsError:
            return None
        indices = [name for name, value in case.values.items() if _is_index(value)]
        alike = tensor_shapes(values) == tensor_shapes(case.values)
        if not alike or all(torch.equal(values[name], case.values[name]) for name in indices):
            return None
        return self._shaped(case.with_values(values, "anew"))

    def derive(self, what: str) -> int:
        """Return a seed that follows from the run's seed and a purpose."""
        return derived(self.seed, f"{self.definition.name} {what}")

    def _once(
        self,
        axes: Mapping[str, int],
        recipe: Recipe,
        workload: Workload | None,
        name: str,
        make: Callable[[], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Make the inputs of a case once for all solutions, unless others than this package make them."""
        if self._makers.by_others:
            return make()
        sizes = workload.uuid if workload is not None else tuple(sorted(axes.items()))
        return self.cache.get((self.file, self.definition.name, sizes, str(recipe.to_json()), name), make)

    def _shaped(self, case: Case) -> Case:
        """Return the case with the shapes of its outputs: by its sizes, else as the reference says."""
        if self._makers.by_others:
            case = replace(case, marked=mark_of(case.values))
        shapes = shapes_of(case.definition, case.axes)
        if declared(case.definition) and None not in shapes.values():
            return replace(case, shapes=shapes)
        if self.reference is None:
            name = next((name for name, shape in shapes.items() if shape is None), "")
            raise Unsatisfiable(f"shape of output {name}", "no input and no constraint decides one of its axes")
        return case.as_told(self.reference.shapes(case), shapes)


def _one_at_times(names: Sequence[str], generator: torch.Generator) -> set[str]:
    """Choose, half of the time, one of several inputs."""
    number = int(torch.randint(max(1, 2 * len(names)), (), generator=generator, device=generator.device))
    return {names[number]} if len(names) > 1 and number < len(names) else set()


def _stored(case: Case) -> set[str]:
    entries = case.workload.inputs if case.workload is not None else {}
    return {name for name, source in entries.items() if source.kind == "safetensors"}


def _stored_masks(case: Case) -> frozenset[str]:
    """Return masks that somebody wrote down: they may belong to other tensors."""
    roles = plan_of(contract_of(case.definition)).roles
    return frozenset(name for name in _stored(case) if name in roles and roles[name].kind in MASKS)


def _is_index(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in IDS and value.ndim > 0
