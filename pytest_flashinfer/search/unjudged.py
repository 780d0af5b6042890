"""Which cases of a search could not be judged, why most of them, and whether the others make a pass."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.sizes.axes import shape_of
from pytest_flashinfer.judge.reference.origin import ReferenceFailed, Unfair

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.recipe import Recipe

_CERTAIN = 2  # failures of the reference, and no case that it can do: it does not take that value of a scalar
_SHARE = 0.1  # of all cases: where fewer could be judged, draws miss what the constraints or the reference ask for


@dataclass
class Tally:
    """Counts the cases of one search: `errors` are why some could not be judged, `telling` others had elements.

    `layouts` are those of which a case was judged.
    """

    definition: Definition
    errors: list[Exception] = field(default_factory=list)
    telling: int = 0
    layouts: set[str] = field(default_factory=set)
    _taken: Counter[tuple[str, object]] = field(default_factory=Counter)
    _refused: Counter[tuple[str, object]] = field(default_factory=Counter)

    def judged(self, axes: Mapping[str, int], recipe: Recipe) -> None:
        """Count a case that was judged."""
        self.telling += not _nothing(self.definition, axes)
        self.layouts.add(recipe.layout)
        self._taken.update(recipe.scalars.items())

    def unjudged(self, error: Exception, recipe: Recipe) -> None:
        """Count a case that could not be judged."""
        self.errors.append(error)
        if isinstance(error, ReferenceFailed) and not isinstance(error, Unfair) and not self.refused(recipe):
            self._refused.update(recipe.scalars.items())

    def refused(self, recipe: Recipe) -> bool:
        """Whether the reference fails with a scalar of this recipe whatever else a case has: a mode it has not got."""
        return any(self._refused[each] >= _CERTAIN and not self._taken[each] for each in recipe.scalars.items())

    def too_little(self, tried: int) -> str | None:
        """Return why a search in which nothing failed is no pass, or `None`: of `tried` cases hardly any says much."""
        judged = tried - len(self.errors)
        if self.errors and not judged:
            return f"no case could be judged; {_most(self.errors)}"
        if tried and not self.telling:
            reason = _most(self.errors) if self.errors else "the constraints leave no other sizes, or none were found"
            return f"only cases without elements could be judged, {judged} of {tried}; {reason}"
        if judged < _SHARE * tried:
            return f"only {judged} of {tried} cases could be judged; {_most(self.errors)}"
        return None

    def warning(self, tried: int) -> str | None:
        """Return what a pass leaves open where most of `tried` cases could not be judged."""
        if not self.errors or 2 * len(self.errors) < tried:
            return None
        return f"{len(self.errors)} of {tried} cases could not be judged; {_most(self.errors)}"


def _most(errors: Sequence[Exception]) -> str:
    """Name the cause of most errors by the last of them: one constraint fails with other numbers each time."""
    causes = [getattr(error, "constraint", None) or type(error).__name__ for error in errors]
    [(usual, _)] = Counter(causes).most_common(1)
    *_, last = (error for error, cause in zip(errors, causes, strict=True) if cause == usual)
    return f"most often: {last}"


def _nothing(definition: Definition, axes: Mapping[str, int]) -> bool:
    """Whether no output has an element at these sizes, or no input that is a tensor."""
    contract = contract_of(definition)
    inputs = [trees for trees in contract.dims.values() if trees]
    return not any(_elements(trees, axes) for trees in contract.output_dims.values()) or (
        bool(inputs) and not any(_elements(trees, axes) for trees in inputs)
    )


def _elements(trees: tuple[ast.expr, ...] | None, axes: Mapping[str, int]) -> int:
    """Return how many elements a tensor has; a scalar is one, and so is a size that nobody knows."""
    return math.prod(1 if n is None else n for n in shape_of(trees or (), axes))
