"""What a definition's own code makes, brought into the form that the definition declares."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pytest_flashinfer.cases.default_inputs import DefaultInputs
from pytest_flashinfer.cases.own_inputs import OwnInputs, as_declared
from pytest_flashinfer.data.model import Axis, Definition, InputSpec, TensorSpec, Workload
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.reference.origin import ModuleAbsent

from .contracts import ROWS

INPUTS = {
    "x": TensorSpec(("n",), "float32"),
    "mask": TensorSpec(("n",), "unknown", optional=True),
    "peak": TensorSpec((), "float32"),
    "scale": TensorSpec(None, "float32"),
}
RECIPE = Recipe(seed=2**40 + 7)


def own(made, unused=(), *, custom=None):
    """Return inputs from a worker that makes `made`, or raises it, and what it was asked."""
    asked = []

    def make(*request):
        asked.append(request)
        if isinstance(made, Exception):
            raise made
        return made, unused

    definition = Definition(
        "d", "op", {"n": Axis("var"), "h": Axis("const", 8)}, INPUTS, {}, "", init="init", custom_inputs=custom
    )
    return OwnInputs(definition, SimpleNamespace(make=make)), asked


def workload(**kinds):
    inputs = {name: InputSpec(kind, 0.5 if kind == "scalar" else None) for name, kind in kinds.items()}
    return Workload("w", {"n": 2}, inputs)


def test_each_value_comes_in_the_declared_form():
    made = {"x": torch.ones(2), "mask": None, "peak": 3, "scale": torch.tensor([0.25]), "other": 1}
    inputs, asked = own(made)
    found = inputs({"n": 2}, RECIPE, None)
    assert found["x"] is made["x"]
    assert found["mask"] is None
    assert (found["peak"].shape, found["peak"].dtype, found["peak"].item()) == ((), torch.float32, 3)
    assert found["scale"] == 0.25
    assert "other" not in found
    assert inputs.made == set(found)
    assert asked == [("init", {"n": 2, "h": 8}, RECIPE.short_seed, {})]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.ones(2, dtype=torch.float64), "made with dtype torch.float64, declared is float32"),
        (torch.ones(2, 1), r"made with shape \[2, 1\], declared is \[n\]"),
        ([1.0], r"made as list, not as a tensor of shape \[n\]"),
        (np.ones(2), r"made as ndarray, not as a tensor of shape \[n\]$"),
        (None, "made as NoneType"),
    ],
)
def test_another_form_is_refused(value, said):
    inputs, _ = own({"x": value})
    with pytest.raises(InputsError, match=said):
        inputs({"n": 2}, RECIPE, None)


@pytest.mark.parametrize(
    "made", [np.float16, np.float32, np.float64, np.int8, np.uint64, np.bool_, np.array, torch.tensor]
)
def test_numbers_of_other_libraries_become_those_of_python(made):
    found = as_declared("scale", made(1), INPUTS["scale"])
    assert (type(found) in {bool, int, float}, found) == (True, 1)
    assert as_declared("peak", made(1.0), INPUTS["peak"]).equal(torch.tensor(1.0))


@pytest.mark.parametrize("value", [np.ones(2), torch.ones(2), [1.0], 1j, np.complex64(1), torch.float16, {}])
def test_a_scalar_that_is_none_is_refused_in_one_line(value):
    name = type(value).__name__
    with pytest.raises(InputsError, match=f"^input scale is made as {name}, not as a number: give a Python scalar$"):
        as_declared("scale", value, INPUTS["scale"])


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "tanh"])
def test_a_plain_scalar_stays_what_it_is(value):
    assert as_declared("scale", value, INPUTS["scale"]) is value


def test_of_a_workload_only_what_it_leaves_open_is_made():
    inputs, asked = own({"x": torch.ones(2), "scale": 1.0})
    assert set(inputs({"n": 2}, RECIPE, workload(x="random", scale="scalar"))) == {"x"}
    assert asked[0][3] == {"scale": 0.5}
    inputs, asked = own({})
    assert inputs({"n": 2}, RECIPE, workload(x="safetensors", scale="scalar")) == {}
    assert asked == []


def test_a_custom_entry_point_makes_what_is_marked_so_and_has_to():
    inputs, asked = own({"x": torch.ones(2)}, custom="gen")
    assert set(inputs({"n": 2}, RECIPE, workload(x="custom", scale="random"))) == {"x"}
    assert asked[0][0] == "custom"
    with pytest.raises(InputsError, match="`gen` makes no `scale`"):
        inputs({"n": 2}, RECIPE, workload(x="custom", scale="custom"))


def test_an_input_that_is_left_out_is_not_made():
    inputs, _ = own({"x": torch.ones(2), "mask": torch.ones(2)})
    assert set(inputs({"n": 2}, Recipe(seed=1, absent=frozenset({"mask"})), None)) == {"x"}


def test_a_module_that_is_absent_is_told_once_and_not_asked_for_again():
    inputs, asked = own(ModuleAbsent("lib is not installed"))
    with pytest.warns(pytest.PytestWarning, match="d: inputs follow from the contract alone, for lib is not installed"):
        assert inputs({"n": 2}, RECIPE, None) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert inputs({"n": 2}, RECIPE, None) == {}
    assert len(asked) == 1


@pytest.mark.parametrize(("unused", "instead"), [((), "scale"), (("X", "rows"), "scale; it makes X, rows")])
def test_code_that_makes_no_input_is_told_once(unused, instead):
    inputs, asked = own({}, unused)
    with pytest.warns(pytest.PytestWarning, match=f"for `init` makes none of x, mask, peak, {instead}$"):
        assert inputs({"n": 2}, RECIPE, None) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert inputs({"n": 3}, RECIPE, None) == {}
    assert len(asked) == 2


@pytest.mark.parametrize("n", [10**14, 2**63, 10**30, 10**400])
def test_what_no_memory_holds_is_not_asked_for(n):
    """Nobody is to blame for torch's own words about it."""
    maker = DefaultInputs(ROWS, "cpu", None)
    with pytest.raises(InputsError, match=r"^no memory here holds .* elements: take smaller sizes$"):
        maker({"n": n, "m": 1, "h": 8}, Recipe(0))
