"""Axes nested in axes: what the reference takes besides its inputs says what a kernel receives."""

import itertools

import pytest

from pytest_flashinfer.data import write
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.traces import load_workloads
from pytest_flashinfer.data.workload_rules import check_workload
from tests.data import samples

NESTED = {"G": {"type": "var"}, "M": {"type": "var", "parent": "G"}, "K": {"type": "var", "parent": "M"}}


def load(tmp_path, taken, axes=None):
    shape = ["G", "M", "K"]
    document = {
        "op": "nest",
        "axes": NESTED if axes is None else axes,
        "input": {"A": {"shape": shape, "dtype": "fp32"}},
        "output": {"C": {"shape": shape, "dtype": "fp32"}},
        "code": f"def forward({', '.join(('A', *taken))}):\n    return A * 2\n",
    }
    return load_definition(samples.write(tmp_path / "nest.json", document))


@pytest.mark.parametrize(
    ("taken", "shapes"),
    [
        ((), {"A": "GMK"}),
        (("M_indptr",), {"A": ("M_total", "K"), "M_indptr": ("len_M_indptr",)}),
        (("M_lengths",), {"A": "GMK", "M_lengths": "G"}),
        (
            ("M_indptr", "K_indptr"),
            {"A": ("K_total",), "M_indptr": ("len_M_indptr",), "K_indptr": ("len_K_indptr",)},
        ),
        (("M_indptr", "K_lengths"), {"A": ("M_total", "K"), "M_indptr": ("len_M_indptr",), "K_lengths": ("M_total",)}),
        (("M_lengths", "K_lengths"), {"A": "GMK", "M_lengths": "G", "K_lengths": "GM"}),
        (("K_lengths",), {"A": "GMK", "K_lengths": "GM"}),
    ],
)
def test_one_length_for_each_element_of_the_parent(tmp_path, taken, shapes):
    for order in itertools.permutations(NESTED):
        loaded = load(tmp_path, taken, {name: NESTED[name] for name in order})
        assert check_definition(loaded) == ()
        assert {name: spec.shape for name, spec in loaded.value.inputs.items()} == {
            name: tuple(shape) for name, shape in shapes.items()
        }
        assert loaded.value.outputs["C"].shape == tuple(shapes["A"])
        text = write.to_text(write.definition_document(loaded.value))
        assert load_definition(samples.write(tmp_path / "again.json", text)).value == loaded.value


def test_the_bounds_of_packed_axes_follow_from_each_other(tmp_path):
    definition = load(tmp_path, ("M_indptr", "K_indptr")).value
    assert definition.axes["len_M_indptr"].expression == "G + 1"
    assert definition.axes["len_K_indptr"].expression == "M_total + 1"
    assert definition.constraints == ("M_total == M_indptr[-1].item()", "K_total == K_indptr[-1].item()")


def test_who_gives_a_packed_axis_a_size_is_told_that_it_is_packed(tmp_path):
    definition = load(tmp_path, ("M_indptr",)).value
    line = {"definition": definition.name, "workload": {"uuid": "u", "axes": {"G": 2, "M": 5}, "inputs": {}}}
    (loaded,) = load_workloads(samples.write_lines(tmp_path / "a.jsonl", line))
    found = [fault.message for fault in check_workload(loaded, definition) if "axes.M" in fault.where]
    assert found == ["'M' is packed (the reference takes M_indptr): give M_total"]


@pytest.mark.parametrize("taken", [("K_indptr",), ("M_lengths", "K_indptr")])
def test_an_axis_is_packed_in_a_packed_one_only(tmp_path, taken):
    found = samples.messages(check_definition(load(tmp_path, taken)))
    assert any("axis 'K' cannot be packed, since 'M' is not: take M_indptr, or K_lengths" in line for line in found)
    assert not any("not kept" in line for line in found), "what could not be read is not said to be lost as well"


def test_a_circle_of_parents_is_a_fault_of_each(tmp_path):
    axes = {**NESTED, "G": {"type": "var", "parent": "K"}}
    found = samples.messages(check_definition(load(tmp_path, (), axes)))
    assert {line.split("'")[1] for line in found} == set(NESTED)
    assert all("is nested in itself, through its parents" in line for line in found)
