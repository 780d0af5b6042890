"""From workloads and drawn sizes to the cases that a solution is called with; what the `cases` fixture returns."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_flashinfer.data.constants import open_constants
from pytest_flashinfer.inputs.errors import BadData
from pytest_flashinfer.inputs.recipe import LAYOUTS, Recipe
from pytest_flashinfer.inputs.seeds import way_of
from pytest_flashinfer.inputs.sizes.axes import solve_axes
from pytest_flashinfer.inputs.variant import ONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.cases.contents import Contents
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.worker.case import Case

KINDS = ("same_ends", "fresh", "permuted")  # how contents vary: in the smoke scope as the first one says
SMALL_BYTES = 1 << 24  # cases up to this size are called more often, each time with contents of their own
DRAWS = {"cpu": 4, "cuda": 8}  # more calls of a sampler on the same contents
QUICK_BYTES, QUICK_DRAWS = 1 << 18, 16  # as many on cases up to this size, whose calls take hardly any time
_WAYS = 4  # one case in so many is called again with index tensors of other lengths, the rest with as much work
LARGEST_BYTES = 1 << 30  # the inputs of cases above this size are held twice and no more


@dataclass(frozen=True)
class Cases:
    """Chooses the cases of one definition, which `contents` makes.

    `kinds` says how contents vary; each costs a run of the oracle, once for all solutions. Where something is drawn,
    its distribution is told from `draws` more calls on contents whose truth is known. `layouts` are those that the run
    asks for: a failure that was saved with another one is not of its contract.
    """

    contents: Contents
    kinds: tuple[str, ...]
    draws: int = DRAWS["cpu"]
    layouts: tuple[str, ...] = LAYOUTS
    _firsts: dict[str, Case] = field(default_factory=dict)  # of this item, by workload

    @property
    def definition(self) -> Definition:
        """The definition that the cases are of."""
        return self.contents.definition

    def first(self, workload: Workload) -> Case:
        """Return the first case of a listed workload, made once for an item. Raises the errors of inputs/errors.py."""
        if workload.uuid not in self._firsts:
            recipe = _recipe_of(workload) or Recipe(self.contents.derive(workload.uuid))
            if recipe.layout not in self.layouts:
                raise BadData(
                    f"saved with inputs that are {recipe.layout}: --fib-layouts={recipe.layout} runs it", "skip"
                )
            # Of open constants the data may show what no size says.
            given = open_constants(self.definition)
            axes = workload.axes if given else solve_axes(self.definition, workload.axes)
            self._firsts[workload.uuid] = self.contents.case(axes, recipe, workload)
        return self._firsts[workload.uuid]

    def drawn(self, axes: Mapping[str, int], recipe: Recipe, *, repeat: bool = True) -> list[Case]:
        """Return the case of drawn sizes; to `repeat`, one with other contents as well.

        For half of the seeds the first comes again elsewhere: a kernel that keeps addresses does so at all sizes.
        """
        first = self.contents.case(axes, recipe, None)
        return [first, *(self._as_drawn(first) if repeat else []), *self._draws(first)]

    def _as_drawn(self, first: Case) -> list[Case]:
        """Return the further cases of drawn sizes."""
        seed = first.recipe.seed
        second = self._second(first) if way_of(seed, "other indices", 2) else _with_bound_of(self._alike(first), first)
        return [second] if way_of(seed, "elsewhere", 2) else [second, first.elsewhere()]

    def repeated(self, workload: Workload) -> list[Case]:
        """Return a workload's cases: contents that look alike, other index tensors, then the first again elsewhere.

        Where they are large, one case has both other index tensors and values that look alike. A failure that was
        saved has those with which it failed, and then those of all kinds.
        """
        first = self.first(workload)
        saved = _was_drawn(first)
        begin = [first, *(self._as_drawn(first) if saved else [])]
        if first.nbytes > SMALL_BYTES:
            return [*begin, *([] if saved else [self._second(first)]), first.elsewhere()]
        anew = self.contents.anew(first)
        kinds = KINDS if saved else self.kinds
        # The first kind stays, for its answer is no answer to these contents: that tells what a tolerance lets pass.
        kinds = (*kinds[:-1], ONE) if len(kinds) > 1 and self._one_changes(first) else kinds
        kinds = tuple(kind for kind in kinds if anew is None or kind != "fresh")  # that has fresh values as well
        variants = self._variants(first, kinds[1:], 1) if saved else self._variants(first, kinds)
        made = {case.variant for case in begin}
        others = [other for other in (self.contents.rearranged(first, alone=saved), anew) if other is not None]
        others = [_with_bound_of(other, first) for other in others if other.variant not in made]
        return [*begin, *variants, *others, first.elsewhere(), *self._draws(first)]

    def _second(self, first: Case) -> Case:
        """Return a case with other index tensors, where it has any: as many as before, for some seeds other lengths."""
        rearranged = functools.partial(self.contents.rearranged, alone=_was_drawn(first))
        ways = (self.contents.anew, rearranged)
        found = (way(first) for way in (reversed(ways) if way_of(first.recipe.seed, "other lengths", _WAYS) else ways))
        return _with_bound_of(next((other for other in found if other is not None), None) or self._alike(first), first)

    def _draws(self, first: Case) -> list[Case]:
        if not self.definition.is_sampling:
            return []
        return [first] * (max(self.draws, QUICK_DRAWS) if first.nbytes <= QUICK_BYTES else self.draws)

    def timed(self, workload: Workload, rounds: int, attempt: int = 0) -> Iterator[Case]:
        """Yield `rounds` cases, each with contents not seen before, nor in another attempt at the measurement.

        All but one, of a place that nobody can guess, borrow the bound of the first case, for finding truths takes
        time. That one has contents seen before where the case is large; a single round has new ones, and borrows where
        to find their truth would take long.
        Outputs that cannot borrow have truths of their own where the case is small; else, and where they take too
        much memory, two contents take turns.
        """
        case = first = self.first(workload)
        small = first.nbytes <= SMALL_BYTES and len(self.kinds) > 1
        borrows = _all_borrow(first)
        known = first  # contents seen before, whose truth has been found
        if first.nbytes > LARGEST_BYTES or not (small or borrows):
            other = self._second(first)
            yield from itertools.islice(itertools.cycle((other, first)), rounds)
            return
        if not small and first.nbytes <= SMALL_BYTES:
            known = self._alike(first)
        alone = rounds == 1
        borrows_all = alone and first.nbytes > SMALL_BYTES
        judged = None if borrows_all else self.contents.derive(f"judged {workload.uuid} {attempt}") % rounds
        past = ""
        for number in range(rounds):
            if number == judged and not (small or alone):
                past = f" past {number}"  # a solution with another number of rounds has others that follow
                yield known
                continue
            # In turns, for answers may be kept by index tensors and a few values as well.
            kind, name = "same_ends" if number % 2 else "fresh", f"timed {attempt} {number}{past}"
            case = self.contents.varied(case, kind, name, shift=number % 2 == 0)
            yield replace(case, bound_of=first) if borrows and number != judged else case

    def _alike(self, first: Case) -> Case:
        """Return a case with contents that look like the first one's; listed ones are among the repeated."""
        one = _was_drawn(first) and self._one_changes(first)
        (other,) = self._variants(first, (ONE,) if one else self.kinds[:1])
        return other

    def _one_changes(self, first: Case) -> bool:
        """Whether a single value changes in one of the calls: by turns, and not where answers are drawn anyway."""
        return not self.definition.is_sampling and way_of(first.recipe.seed, "one value", 2) == 1

    def _variants(self, first: Case, kinds: tuple[str, ...], start: int = 0) -> Iterator[Case]:
        case, drawn = first, _was_drawn(first)
        for number, kind in enumerate(kinds, start):
            begins = number == 0
            entire = begins and not drawn  # its answer is no answer to the first one's contents
            case = self.contents.varied(case, kind, f"{number} {kind}", entire=entire, alone=begins and drawn)
            yield case


def _with_bound_of(other: Case, first: Case) -> Case:
    """Have a case borrow the bound of the first, if it can: to show answers that were kept, which are far off."""
    return replace(other, bound_of=first) if _all_borrow(first) else other


def _all_borrow(case: Case) -> bool:
    """Whether one bound for all elements and all contents makes sense: not for integers, codes and what is drawn."""
    borrowers = ("float64", "float32", "float16", "bfloat16")
    return all(output.dtype in borrowers for output in case.definition.outputs.values())


def _was_drawn(case: Case) -> bool:
    """Whether `test_sizes` drew a case: now, or in the run that saved it."""
    return case.workload is None or "recipe" in case.workload.extra


def _recipe_of(workload: Workload) -> Recipe | None:
    """Return the recipe that a saved failure carries. Raises BadData where it is none."""
    record = workload.extra.get("recipe")
    try:
        return None if record is None else Recipe.from_json(record)
    except ValueError as error:
        raise BadData(f"workload {workload.uuid}: {error}; correct it, or leave the recipe out") from error
