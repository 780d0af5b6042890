"""Inputs stored for a workload: taken as they are, and checked against the axes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.inputs.errors import AxisConflict, BadData
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.recipe import Recipe
from tests.inputs.contracts import MLA_PREFILL, RAGGED


def workload(axes, stored, definition):
    inputs = dict.fromkeys(definition.inputs, InputSpec("random"))
    inputs.update({name: InputSpec("safetensors", path="blob/a.safetensors", tensor_key=name) for name in stored})
    return Workload("w", axes, inputs)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "blob").mkdir()
    return tmp_path


def test_generated_inputs_agree_with_stored_ones(root):
    kv = torch.tensor([0, 3, 3, 8], dtype=torch.int32)
    last = torch.tensor([2, 0, 4], dtype=torch.int32)
    save_file({"kv_indptr": kv, "kv_last_page_len": last}, root / "blob/a.safetensors")
    axes = {"total_q": 12, "num_pages": 9, "len_indptr": 4, "num_kv_indices": 8}
    line = workload(axes, {"kv_indptr", "kv_last_page_len"}, MLA_PREFILL)
    inputs = make_inputs(MLA_PREFILL, axes, Recipe(0), workload=line, root=root)
    assert torch.equal(inputs["kv_indptr"], kv)
    assert (inputs["qo_indptr"].diff() <= torch.tensor([10, 0, 20])).all()
    assert inputs["qo_indptr"][-1] == 12


def test_stored_data_that_contradicts_the_axes_is_a_conflict(root):
    save_file({"indptr": torch.tensor([0, 2, 9], dtype=torch.int32)}, root / "blob/a.safetensors")
    axes = {"n": 2, "len_indptr": 3, "total": 7}
    with pytest.raises(AxisConflict, match=r"total == indptr\[-1\].item\(\)"):
        make_inputs(RAGGED, axes, Recipe(0), workload=workload(axes, {"indptr"}, RAGGED), root=root)


def test_a_stored_tensor_of_another_shape_is_told_with_both_shapes(root):
    save_file({"x": torch.ones(5, 8)}, root / "blob/a.safetensors")
    axes = {"n": 2, "len_indptr": 3, "total": 7}
    with pytest.raises(BadData) as caught:
        make_inputs(RAGGED, axes, Recipe(0), workload=workload(axes, {"x"}, RAGGED), root=root)
    told = "blob/a.safetensors holds 'x' as [5, 8], the axes make it [7, 8]; correct one of the two"
    assert str(caught.value) == f"input `x`: {told}"
    with pytest.raises(BadData, match=r"`x`: the definition's own code makes it \[5, 8\], the axes make it \[7, 8\]"):
        make_inputs(RAGGED, axes, Recipe(0), given={"x": torch.ones(5, 8)})


def test_a_number_in_place_of_a_tensor_is_told_as_that(root):
    axes = {"n": 2, "len_indptr": 3, "total": 7}
    line = workload(axes, (), RAGGED)
    line = replace(line, inputs={**line.inputs, "x": InputSpec("scalar", value=1.5)})
    with pytest.raises(BadData, match=r"`x`: the workload gives one number, which is \[\], the axes make it \[7, 8\]"):
        make_inputs(RAGGED, axes, Recipe(0), workload=line, root=root)


def test_a_missing_blob_is_told_in_one_line(root):
    axes = {"n": 2, "len_indptr": 3, "total": 7}
    with pytest.raises(BadData, match="indptr") as caught:
        make_inputs(RAGGED, axes, Recipe(0), workload=workload(axes, {"indptr"}, RAGGED), root=root)
    assert "\n" not in str(caught.value)


def test_sizes_are_bound_by_stored_shapes(root):
    save_file({"x": torch.ones(5, 8), "indptr": torch.tensor([0, 5], dtype=torch.int32)}, root / "blob/a.safetensors")
    line = workload({}, {"x", "indptr"}, RAGGED)
    assert make_inputs(RAGGED, {}, Recipe(0), workload=line, root=root)["x"].sum() == 40
