"""The sizes at which offsets of 32 bits overflow, and what memory they need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.sizes import beyond_int32
from pytest_flashinfer.inputs.sizes.beyond_int32 import crossings
from pytest_flashinfer.inputs.sizes.grid import grid_of
from tests.inputs.contracts import ALL, PAGED_DECODE, RAGGED


def rows(dtype="bfloat16", h=4096):
    x = TensorSpec(("n", "h"), dtype)
    axes = {"n": Axis("var"), "h": Axis("const", h)}
    return Definition("rows", "elementwise", axes, {"x": x}, {"y": x}, reference="")


def test_the_least_size_that_crosses():
    [case] = crossings(rows())
    assert (case.axis, case.axes["n"]) == ("n", 2**31 // 4096 + 1)


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_every_case_crosses_and_the_smallest_comes_first(definition, monkeypatch):
    monkeypatch.setattr(beyond_int32, "_OFFSETS", 1 << 20)
    found = crossings(definition)
    grid = grid_of(definition)
    assert all(grid.largest(case.axes) > 1 << 20 for case in found)
    assert [case.nbytes for case in found] == sorted(case.nbytes for case in found)
    assert len({str(case.axes) for case in found}) == len(found)


def test_where_ids_point_into_an_axis_some_point_beyond(monkeypatch):
    """The least size that crosses has one page beyond, which hardly any id would be."""
    monkeypatch.setattr(beyond_int32, "_OFFSETS", 1 << 16)
    case = next(case for case in crossings(PAGED_DECODE) if case.axis == "pages")
    ids = make_inputs(PAGED_DECODE, case.axes, case.recipe)["kv_indices"]
    elements = grid_of(PAGED_DECODE).largest(case.axes) // case.axes["pages"]
    assert int(ids.max()) * elements > 1 << 16


def test_sequences_are_no_case_where_only_the_pointers_to_them_would_cross():
    assert {case.axis for case in crossings(RAGGED)} == {"n", "total"}, "an output has a row for each"
    each = replace(RAGGED, outputs={"y": RAGGED.inputs["x"]})
    assert {case.axis for case in crossings(each)} == {"total"}


def test_what_cannot_grow_has_no_case():
    x = TensorSpec(("h",), "float32")
    fixed = Definition("fixed", "elementwise", {"h": Axis("const", 8)}, {"x": x}, {"y": x}, reference="")
    assert crossings(fixed) == []


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("bfloat16", 80, 130), ("float32", 130, 220), ("float4_e2m1", 70, 110)]
)
def test_more_memory_is_asked_for_than_all_copies_take(dtype, least, most):
    [case] = crossings(rows(dtype))
    assert least < case.nbytes / 2**30 < most
