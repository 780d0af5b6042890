"""What a reading would lose is a fault; constants that a dump leaves open come from the data."""

from dataclasses import replace

import pytest

from pytest_flashinfer.data.constants import open_constants, pinned, shown
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.losses import nothing_is_lost
from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from tests.data import samples

FORMS = [samples.BASE, samples.SIGNATURE, samples.DESCRIPTION, samples.DUMP, samples.SOL]


@pytest.mark.parametrize("document", FORMS, ids=lambda document: document.get("name") or document.get("id") or "op")
def test_no_form_loses_anything(tmp_path, document):
    definition = load_definition(samples.write(tmp_path / "a.json", document)).value
    assert list(nothing_is_lost(definition)) == []


BASE = Definition(
    "d", "op", {"n": Axis("var")}, {"x": TensorSpec(("n",), "float32")}, {}, "def run(x):\n    return x\n"
)


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"axes": {"n": Axis("ragged")}}, ("axes", "n", "type"), "cannot be written in the canonical form"),
        ({"inputs": {"x": TensorSpec(("n",), "fp32")}}, ("inputs",), "is not kept when the definition is written"),
    ],
)
def test_what_the_canonical_form_cannot_say_is_named(changes, where, said):
    [(found, message, kind), *_] = nothing_is_lost(replace(BASE, **changes))
    assert (found, kind) == (where, "fault")
    assert message.startswith(said)


OPEN = replace(
    BASE,
    axes={"n": Axis("var"), "d": Axis("const"), "e": Axis("const"), "h": Axis("const", 8)},
    inputs={"x": TensorSpec(("n", "d", "h"), "float32"), "q": TensorSpec(("d", "e"), "int4")},
)


def test_open_constants_are_those_without_a_value():
    assert open_constants(OPEN) == ("d", "e")
    assert open_constants(BASE) == ()


def test_the_first_workload_that_names_a_constant_gives_its_value():
    found = pinned(OPEN, [{"n": 3}, {"n": 3, "d": 6, "h": 9}, {"d": 7, "e": 5}])
    assert {name: axis.value for name, axis in found.axes.items()} == {"n": None, "d": 6, "e": 5, "h": 8}
    assert pinned(OPEN, [{"n": 3}]) is OPEN


def test_stored_shapes_show_sizes_but_for_halved_ones():
    assert shown(OPEN, {"x": (3, 6, 8), "q": (6, 2), "other": (1,)}) == {"n": 3, "d": 6}
    assert shown(OPEN, {}) == {}
