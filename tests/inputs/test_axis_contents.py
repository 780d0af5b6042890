"""What lies along an axis, also of a contract that is broken elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles.axis_contents import rows, tokens

AXES = {"n": Axis("var"), "h": Axis("var"), "v": Axis("const", 9)}
INPUTS = {
    "x": TensorSpec(("n", "h"), "float32"),
    "ids": TensorSpec(("n",), "int32"),
    "table": TensorSpec(("v", "h"), "float32"),
}
DEFINITION = Definition("d", "op", AXES, INPUTS, {"y": TensorSpec(("n", "h"), "float32")}, None)


def test_rows_of_floats_lie_along_their_last_axis():
    contract = contract_of(DEFINITION)
    assert rows(contract, plan_of(contract)) == {"h"}


@pytest.mark.parametrize("dtype", ["bf61", "string"])
def test_of_a_dtype_that_is_none_nothing_lies_anywhere_and_inputs_say_so(dtype):
    broken = replace(DEFINITION, inputs={**INPUTS, "x": TensorSpec(("n", "h"), dtype)})
    contract = contract_of(broken)
    assert rows(contract, plan_of(contract)) <= {"h"}
    assert tokens(contract, plan_of(contract)) == frozenset()
    with pytest.raises(InputsError):
        make_inputs(broken, {"n": 2, "h": 4}, Recipe(1))
