"""Form 2: scalars as numbers and as 0-d tensors, a reference that writes into its outputs, assumptions."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .conftest import RANDOM

NAME = "norm_pair"
DOCUMENT = {
    "id": NAME,
    "axes": {"n": {"type": "var"}, "m": {"type": "var"}, "h": {"type": "const", "value": 8}},
    "assumptions": ["m == 2 * n"],
    "inputs": {
        "x": {"shape": ["n", "h"], "dtype": "float32"},
        "z": {"shape": ["m"], "dtype": "float32"},
        "eps": {"shape": [], "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32"}, "peak": {"shape": [], "dtype": "float32"}},
    "reference_code": dedent(
        """
        import torch

        def run(x: torch.Tensor, z, eps, y, peak) -> None:
            assert z.shape[0] == 2 * x.shape[0]
            y.copy_(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))
            peak.copy_(z.abs().sum())
        """
    ),
}
BODY = """
import torch
def norm(x, eps):
    print("eps is a", type(eps).__name__)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
"""
RETURNS = BODY + """
def run(x, z, eps):
    return norm(x, eps), z.abs().sum().item()
"""
TENSOR = BODY + """
def run(x, z, eps):
    return norm(x, eps), z.abs().sum()
"""
WRITES = BODY + """
def run(x, z, eps, y, peak):
    y.copy_(norm(x, eps))
    peak.copy_(z.abs().sum())
"""
WRONG = BODY + """
def run(x, z, eps):
    return norm(x, eps), float(z.sum())
"""
NUMBER_ONLY = BODY + """
import math
def run(x, z, eps):
    assert isinstance(eps, float)
    return norm(x, eps), z.abs().sum()
"""


@pytest.fixture(scope="module")
def ran(forms_root):
    forms = forms_root("form_2")
    forms.define(DOCUMENT)
    eps = {"type": "scalar", "value": 1e-5}
    forms.lines(
        NAME,
        {"uuid": "number", "axes": {"n": 3, "m": 6}, "inputs": {"x": RANDOM, "z": RANDOM, "eps": eps}},
        {"uuid": "tensor", "axes": {"n": 4, "m": 8}, "inputs": {"x": RANDOM, "z": RANDOM, "eps": RANDOM}},
    )
    forms.solve(NAME, "returns", RETURNS)
    forms.solve(NAME, "tensor", TENSOR)
    forms.solve(NAME, "writes", WRITES, destination=True)
    forms.solve(NAME, "wrong", WRONG)
    forms.solve(NAME, "number_only", NUMBER_ONLY)
    return forms.run("-rA", "--fib-examples=10")


@pytest.mark.parametrize("name", ["returns", "tensor", "writes"])
def test_honest_solutions_pass_in_both_styles(ran, name):
    assert set(ran.outcomes(f"[{name}").values()) == {"passed"}
    assert "eps is a float" in ran[f"test_correct[{name}-n3"].text
    assert "eps is a Tensor" in ran[f"test_correct[{name}-n4"].text
    sizes = ran[f"test_sizes[{name}"].text
    assert "eps is a float" in sizes
    assert "eps is a Tensor" in sizes


def test_a_wrong_scalar_output_fails(ran):
    failure = ran["test_correct[wrong-n3"]
    assert failure.outcome == "failure"
    assert "peak" in failure.text


def test_a_solution_has_to_take_both(ran):
    assert ran["test_correct[number_only-n3"].outcome == "passed"
    assert ran["test_correct[number_only-n4"].outcome == "failure"
    assert ran["test_sizes[number_only"].outcome == "failure"
