"""From workloads and drawn sizes to cases with concrete inputs; what the `inputs` and `cases` fixtures return."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.data.constants import open_constants, shown
from pytest_flashinfer.default_inputs import moved, tensor_shapes
from pytest_flashinfer.inputs.axes import solve_axes
from pytest_flashinfer.inputs.errors import InputsError, Unbound, Unsatisfiable
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.variant import variant
from pytest_flashinfer.kept import Kept
from pytest_flashinfer.worker.case import Case, declared, shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.judge.answers import Answers

Inputs = Callable[[Mapping[str, int], Recipe, "Workload | None"], Mapping[str, Any]]
SMALL_BYTES = 1 << 24  # cases up to this size are called more often, each time with contents of their own
DRAWS = {"cpu": 4, "cuda": 8}  # more calls of a sampler on the same contents
ANEW, SEEDS = 0x5EED5EED, 1 << 31  # how far the seed of other index tensors is off, and how many seeds there are
LARGEST_BYTES = 1 << 30  # the inputs of cases above this size are held twice and no more


@dataclass(frozen=True)
class Cases:
    """Makes the cases of one definition. All inputs follow from `seed`, the run's own.

    `inputs` makes them; `default` is what would, had nobody overridden it: what differs is left alone between calls.
    `kinds` says how contents vary; each costs a run of the oracle, once for all solutions. `reference` is asked for
    the shapes that no size decides. `kept` holds inputs for the next solution. Where something is drawn, its
    distribution is told from `draws` more calls on contents whose truth is known.
    """

    definition: Definition
    inputs: Inputs
    default: Inputs
    seed: int
    kinds: tuple[str, ...]
    reference: Answers | None = None
    kept: Kept = field(default_factory=Kept)
    draws: int = DRAWS["cpu"]
    _firsts: dict[str, Case] = field(default_factory=dict)  # of this item, by workload, as are the next
    _owned: dict[str, frozenset[str]] = field(default_factory=dict)

    def first(self, workload: Workload) -> Case:
        """Return the first case of a listed workload, made once for an item. Raises the errors of inputs/errors.py."""
        if workload.uuid not in self._firsts:
            recipe = _recipe_of(workload) or Recipe(self._derive(workload.uuid))
            # Of open constants the data may show what no size says.
            given = open_constants(self.definition)
            axes = workload.axes if given else solve_axes(self.definition, workload.axes)
            self._firsts[workload.uuid] = self._case(axes, recipe, workload)
        return self._firsts[workload.uuid]

    def drawn(self, axes: Mapping[str, int], recipe: Recipe, *, repeat: bool = True) -> list[Case]:
        """Return the case of drawn sizes; to `repeat`, one with other contents and the first elsewhere as well."""
        first = self._case(axes, recipe, None)
        if not repeat:
            return [first, *self._draws(first)]
        other = self._anew(first) if recipe.seed % 2 else []
        return [first, *(other or [_lent(self._alike(first), first)]), first.elsewhere(), *self._draws(first)]

    def repeated(self, workload: Workload) -> list[Case]:
        """Return a workload's cases: contents that look alike, fresh ones, then the first again elsewhere."""
        first = self.first(workload)
        if first.nbytes > SMALL_BYTES:
            return [first, _lent(self._alike(first), first), first.elsewhere()]
        anew = self._anew(first)
        kinds = tuple(kind for kind in self.kinds if not anew or kind != "fresh")  # those have fresh values as well
        return [first, *self._variants(first, kinds), *anew, first.elsewhere(), *self._draws(first)]

    def _anew(self, first: Case) -> list[Case]:
        """Return a case whose index tensors are other ones as well, where it has any: answers may be kept by shapes."""
        if self._made or not any(map(_is_index, first.values.values())):
            return []
        # Of this case alone, so that a line by which it is kept fails again whatever the run's seed is.
        recipe = replace(first.recipe, seed=(first.recipe.seed + ANEW) % SEEDS)
        make = functools.partial(self.inputs, first.axes, recipe, first.workload)
        try:
            values = self._once(first.axes, first.recipe, first.workload, "anew", make)
        except InputsError:
            return []
        if tensor_shapes(values) != tensor_shapes(first.values):
            return []
        return [_lent(self._shaped(first.with_values(values, "anew")), first)]

    def _draws(self, first: Case) -> list[Case]:
        return [first] * (self.draws if self.definition.op_type == "sampling" else 0)

    def timed(self, workload: Workload, rounds: int, attempt: int = 0) -> Iterator[Case]:
        """Yield `rounds` cases, each with contents not seen before, nor in another attempt at the measurement.

        All but one, of a place that nobody can guess, borrow the bound of the first case, for finding truths takes
        time. That one has contents seen before where the case is large; a single round has new ones, and borrows where
        to find their truth would take long.
        Outputs that cannot borrow have truths of their own where the case is small; else, and where they take too
        much memory, two contents take turns.
        """
        case = first = self.first(workload)
        own = self._own(first)
        small = first.nbytes <= SMALL_BYTES and len(self.kinds) > 1
        borrows = _all_borrow(first)
        known = first  # contents seen before, whose truth has been found
        if first.nbytes > LARGEST_BYTES or not (small or borrows):
            other = self._alike(first)
            other = _lent(other, first) if first.nbytes > SMALL_BYTES else other
            yield from itertools.islice(itertools.cycle((other, first)), rounds)
            return
        if not small and first.nbytes <= SMALL_BYTES:
            known = self._alike(first)
        alone = rounds == 1
        borrows_all = alone and first.nbytes > SMALL_BYTES
        judged = None if borrows_all else self._derive(f"judged {workload.uuid} {attempt}") % rounds
        for number in range(rounds):
            if number == judged and not (small or alone):
                yield known
                continue
            case = self._variant(case, "fresh", f"timed {attempt} {number}", own)
            yield replace(case, lender=first) if borrows and number != judged else case

    def _case(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None) -> Case:
        waiting = [name for name in open_constants(self.definition) if name not in axes]
        try:
            values = self._once(axes, recipe, workload, "first", lambda: self.inputs(axes, recipe, workload))
            if waiting or self._made:
                axes = solve_axes(self.definition, {**axes, **shown(self.definition, tensor_shapes(values))})
        except Unsatisfiable as error:
            if waiting:
                raise Unbound(f"axis `{waiting[0]}` is a constant without a value: {error}") from error
            raise
        return self._shaped(Case(self.definition, axes, recipe, values, {}, workload=workload))

    def _once(
        self,
        axes: Mapping[str, int],
        recipe: Recipe,
        workload: Workload | None,
        name: str,
        make: Callable[[], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Make the inputs of a case once for all solutions, unless others than this package make them."""
        if self.inputs != self.default or getattr(self.default, "own", None) is not None:
            return make()
        sizes = workload.uuid if workload is not None else tuple(sorted(axes.items()))
        return self.kept.get((self.definition.name, sizes, str(recipe.to_json()), name), make)

    def _shaped(self, case: Case) -> Case:
        """Return the case with the shapes of its outputs: by its sizes, else as the reference says."""
        shapes = shapes_of(case.definition, case.axes)
        if declared(case.definition) and None not in shapes.values():
            return replace(case, shapes=shapes)
        if self.reference is None:
            name = next((name for name, shape in shapes.items() if shape is None), "")
            raise Unsatisfiable(f"shape of output {name}", "no input and no constraint decides one of its axes")
        return case.as_told(self.reference.shapes(case), shapes)

    @property
    def _made(self) -> frozenset[str]:
        """The inputs that the definition's own code has made."""
        own = getattr(self.default, "own", None)
        return frozenset() if own is None else frozenset(own.made)

    def _alike(self, first: Case) -> Case:
        """Return a case with contents that look like the first one's."""
        (other,) = self._variants(first, self.kinds[:1])
        return other

    def _variants(self, first: Case, kinds: tuple[str, ...]) -> Iterator[Case]:
        case, own = first, self._own(first)
        for number, kind in enumerate(kinds):
            case = self._variant(case, kind, f"{number} {kind}", own)
            yield case

    def _own(self, first: Case) -> frozenset[str]:
        """Return the inputs that an override made: only it knows what else they could hold."""
        if self.inputs == self.default:
            return frozenset()
        if first.workload is None:
            return self._made_by_override(first)
        uuid = first.workload.uuid
        if uuid not in self._owned:
            self._owned[uuid] = self._made_by_override(first)
        return self._owned[uuid]

    def _made_by_override(self, case: Case) -> frozenset[str]:
        try:
            usual = self.default(case.axes, case.recipe, case.workload)
        except InputsError:
            return frozenset(case.values)
        return frozenset(name for name, value in case.values.items() if not _same(value, usual[name]))

    def _variant(self, case: Case, kind: str, name: str, own: frozenset[str]) -> Case:
        if own and own >= case.values.keys():
            recipe = replace(case.recipe, seed=self._derive(f"{case.recipe.seed} {name}"))
            return self._shaped(case.with_values(self.inputs(case.axes, recipe, case.workload), name))
        keep = own | self._made
        device = next((value.device for value in case.values.values() if isinstance(value, torch.Tensor)), "cpu")
        generator = torch.Generator(device).manual_seed(self._derive(f"{case.recipe.seed} {name}"))

        def make() -> Mapping[str, Any]:
            drawn = variant(case.values, self.definition, kind, generator, keep=keep)
            return {**drawn, **self._made_again(case, name)}

        values = self._once(case.axes, case.recipe, case.workload, name, make)
        return self._shaped(case.with_values(values, name))

    def _made_again(self, case: Case, name: str) -> dict[str, Any]:
        """Return what the definition's own code makes with another seed, where that has the same shapes."""
        own = getattr(self.default, "own", None)
        if not self._made or own is None or self.inputs != self.default:
            return {}
        recipe = replace(case.recipe, seed=self._derive(f"{case.recipe.seed} {name}"))
        made = own(case.axes, recipe, case.workload)
        made = {key: moved(value, own.reference.pool.device) for key, value in made.items()}
        known = {key: case.values[key] for key in made}
        return made if tensor_shapes(made) == tensor_shapes(known) else {}

    def _derive(self, what: str) -> int:
        """Return a seed of 32 bits that follows from the run's seed and a purpose."""
        text = f"{self.seed} {self.definition.name} {what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _lent(other: Case, first: Case) -> Case:
    """Have a case borrow the bound of the first, if it can: to show answers that were kept, which are far off."""
    return replace(other, lender=first) if _all_borrow(first) else other


def _all_borrow(case: Case) -> bool:
    """Whether one bound for all elements and all contents makes sense: not for integers, codes and what is drawn."""
    borrowers = ("float64", "float32", "float16", "bfloat16")
    return all(output.dtype in borrowers for output in case.definition.outputs.values())


def _is_index(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64) and value.ndim > 0


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
