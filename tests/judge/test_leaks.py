"""NaN that is there to show a leak decides nothing about what it may reach, whatever the reference makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.leaks import of_what_they_do_not_reach
from pytest_flashinfer.judge.oracle.truth import OutputSpec
from pytest_flashinfer.judge.reference.origin import ReferenceFailed

SPECS = {"scale": OutputSpec("float32", (3,)), "which": OutputSpec("int64", (3,)), "y": OutputSpec("float16", (3, 4))}
X = torch.tensor([[1.0, 2, 3, 4], [5, float("nan"), 7, 2], [9, 1, 2, 3]])


@dataclass(frozen=True)
class Recipe:
    family: str


@dataclass(frozen=True)
class Case:
    recipe: Recipe
    values: dict

    def with_values(self, values, variant):
        assert variant
        return replace(self, values=values)


def quantised(x):
    """An exponent and an index of rows: of a row with NaN both are numbers, which mean nothing."""
    most = x.abs().amax(dim=1)
    return torch.ldexp(torch.ones(3), torch.frexp(most).exponent), x.argmax(dim=1), x.to(torch.float16)


def judged(family, native=lambda case: evaluate(quantised, case.values, SPECS)):
    case = Case(Recipe(family), {"x": X})
    found = of_what_they_do_not_reach(evaluate(quantised, case.values, SPECS), case, native)
    return {name: None if each.undecided is None else each.undecided.tolist() for name, each in found.outputs.items()}


@pytest.mark.parametrize("family", ["nan", "inf"])
def test_numbers_that_are_made_of_nan_are_left_open_and_others_are_not(family):
    undecided = judged(family)
    assert undecided["scale"] == undecided["which"] == [False, True, False]
    assert undecided["y"] == [[False] * 4, [False, True, False, False], [False] * 4]


def test_what_nobody_reads_takes_no_further_run():
    asked = []
    undecided = judged("normal", asked.append)
    assert not asked
    assert undecided["y"] == [[False] * 4, [False, True, False, False], [False] * 4]


def test_a_reference_that_fails_without_them_changes_nothing():
    assert judged("nan", lambda case: ReferenceFailed("no")) == judged("normal", None)


def test_eight_bits_are_compared_as_they_are():
    specs = {"codes": OutputSpec("float8_e4m3fn", (3, 4))}

    def coded(x):
        return (x.nan_to_num(3.0)).to(torch.float8_e4m3fn)

    case = Case(Recipe("nan"), {"x": X})
    native = evaluate(coded, case.values, specs)
    found = of_what_they_do_not_reach(native, case, lambda other: evaluate(coded, other.values, specs))
    assert found.outputs["codes"].undecided.sum() == 1
