"""When two workload lines keep the same case but for the seed."""

import json
from dataclasses import replace

import pytest

from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.workload_line import but_for_the_seed, workload_line
from tests.layer.contracts import ROWS

RECIPE = Recipe(1, "tiny", absent=frozenset({"w"}), scalars={"scale": 0.5})


def line(recipe=RECIPE, definition=ROWS, **axes):
    return workload_line(definition, {"n": 3, "h": 8} | axes, recipe, {}).encode()


def test_another_seed_is_the_same():
    other = line(replace(RECIPE, seed=2))
    assert other != line()
    assert but_for_the_seed(other) == but_for_the_seed(line())


def test_a_line_written_in_another_way_is_the_same():
    record = json.loads(line(Recipe(7)))
    record["workload"]["recipe"] = {"seed": 3, "layout": "contiguous"}
    assert but_for_the_seed(json.dumps(record, indent=1).encode()) == but_for_the_seed(line(Recipe(7)))


@pytest.mark.parametrize(
    "other",
    [
        line(n=4),
        line(definition=replace(ROWS, name="other")),
        *(
            line(replace(RECIPE, **change))
            for change in (
                {"family": "normal"}, {"structure": "empty"}, {"absent": frozenset()}, {"scalars": {"scale": 1.0}},
                {"layout": "strided"},
            )
        ),
    ],
)  # fmt: skip
def test_another_case_is_another(other):
    assert but_for_the_seed(other) != but_for_the_seed(line())


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"recipe": 1}', b'{"workload": {"axes": {}, "recipe": {"seed": "x"}}}', b"\xff recipe"]
)
def test_what_is_no_such_line_is_itself(text):
    assert but_for_the_seed(text) == text
