"""What is found out about a failure of `test_sizes` by checking its smallest case once more, or one beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.solution_call import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.search.minimal_case import Outcome
    from pytest_flashinfer.testing import UnderTest


class CaseCheck(Protocol):
    """Checks one drawn case; to `repeat`, by several calls. Raises Failed."""

    def __call__(self, axes: Mapping[str, int], recipe: Recipe, *, repeat: bool) -> None:
        """Check."""


def passes_in_new_process(definition: Definition, found: Outcome, solution: UnderTest, check: CaseCheck) -> bool:
    """Say whether the smallest case passes in a process that saw no other."""
    assert found.smallest is not None
    if _ends_it(definition, found):
        return False
    solution.close()
    return _passes(check, *found.smallest)


def empty_axis(definition: Definition, found: Outcome, check: CaseCheck) -> str:
    """Return the axis whose size of 0 makes the smallest case fail: at 1 it passes. Empty where there is none."""
    assert found.smallest is not None
    axes, recipe = found.smallest
    name = next((name for name in definition.var_axes if axes.get(name) == 0), "")
    if not name or _ends_it(definition, found):
        return name
    try:
        larger = grid_of(definition).settled({**axes, name: 1}, (name,))
    except InputsError:
        return name
    return name if _passes(check, larger, recipe) else ""


def contiguous_too(definition: Definition, found: Outcome, check: CaseCheck) -> bool | None:
    """Say whether the smallest case fails with contiguous inputs as well; `None` where it has such, or nobody looks."""
    assert found.smallest is not None
    axes, recipe = found.smallest
    if recipe.layout == "contiguous" or _ends_it(definition, found):
        return None
    return not _passes(check, axes, replace(recipe, layout="contiguous"))


def _ends_it(definition: Definition, found: Outcome) -> bool:
    """Whether nothing is checked once more: draws are judged together, and nobody waits for another hang."""
    assert isinstance(found.failure, Failed)
    return found.failure.verdict.status == "TIMEOUT" or definition.is_sampling


def _passes(check: CaseCheck, axes: Mapping[str, int], recipe: Recipe) -> bool:
    try:
        check(axes, recipe, repeat=True)
    except (Failed, InputsError, ReferenceFailed):
        return False
    return True
