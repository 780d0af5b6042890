"""Form 6: a folder for each problem, computed axes, inputs from a function of the reference, tolerance by workload."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .conftest import RANDOM

NAME = "gather_heads"
CUSTOM = {"type": "custom"}
DOCUMENT = {
    "name": NAME,
    "description": "Scale chosen rows",
    "op_type": None,
    "axes": {
        "t": {"type": "var"},
        "hidden": {"type": "const", "value": 8},
        "heads": {"type": "const", "value": 2},
        "dim": {"type": "expr", "expression": "hidden // heads"},
        "pairs": {"type": "expr", "expression": "2 * t"},
    },
    "custom_inputs_entrypoint": "make",
    "inputs": {
        "x": {"shape": ["t", "heads", "dim"], "dtype": "float32"},
        "p": {"shape": ["pairs"], "dtype": "int64"},
        "s": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["pairs", "heads", "dim"], "dtype": "float32"}},
    "reference": dedent(
        """
        import torch

        def make(axes_and_scalars, device):
            t, s = axes_and_scalars["t"], axes_and_scalars.get("s", 1.0)
            assert axes_and_scalars["dim"] == 4 and axes_and_scalars["pairs"] == 2 * t
            return {"p": torch.cat([torch.randperm(t, device=device), torch.randperm(t, device=device)])}

        @torch.no_grad()
        def run(x, p, s):
            assert p.numel() == 0 or sorted(set(p.tolist())) == list(range(x.shape[0])), "custom"
            return x[p] * s
        """
    ),
}
GOOD = """
def run(x, p, s):
    print("places", p.tolist())
    return x.index_select(0, p) * s
"""
NEAR = """
def run(x, p, s):
    return x[p] * s + 0.001
"""
WRONG = """
def run(x, p, s):
    return x[p.sort().values] * s
"""


@pytest.fixture(scope="module")
def ran(forms_root):
    forms = forms_root("form_6")
    forms.define(DOCUMENT, "definitions/{name}/definition.json")
    inputs = {"x": RANDOM, "p": CUSTOM, "s": {"type": "scalar", "value": 0.5}}
    loose = {"max_atol": 0.01, "max_rtol": 0.0, "required_matched_ratio": 1.0, "max_error_cap": 0.1,
             "allow_negative_inf": False}  # fmt: skip
    capped = {"max_atol": 0.01, "max_rtol": 0.0, "required_matched_ratio": 0.5, "max_error_cap": 0.0001}
    forms.lines(
        NAME,
        {"uuid": "plain", "axes": {"t": 5}, "inputs": inputs},
        {"uuid": "loose", "axes": {"t": 6}, "inputs": inputs, "tolerance": loose},
        {"uuid": "capped", "axes": {"t": 7}, "inputs": inputs, "tolerance": capped},
        path="definitions/{name}/workload.jsonl",
        bare=True,
    )
    for name, source in (("good", GOOD), ("near", NEAR), ("wrong", WRONG)):
        forms.solve(NAME, name, source)
    return forms.run("-rA", "--fib-examples=12")


def test_the_honest_solution_passes_everywhere(ran):
    assert set(ran.outcomes("[good").values()) == {"passed"}
    assert {case.outcome for case in ran.of("test_reference")} == {"passed"}
    assert ran["test_schema"].outcome == "passed"


def test_custom_inputs_change_from_call_to_call(ran):
    text = ran["test_correct[good-t6"].text
    seen = {line for line in text.splitlines() if line.startswith("places")}
    assert len(seen) > 1


def test_the_tolerance_of_a_workload_is_in_force(ran):
    assert ran["test_correct[near-t5"].outcome == "failure"
    assert ran["test_correct[near-t6"].outcome == "passed"
    assert ran["test_correct[near-t7"].outcome == "failure"
    assert ran["test_sizes[near"].outcome == "failure"


def test_a_wrong_solution_fails(ran):
    assert {ran[f"test_correct[wrong-t{size}"].outcome for size in (5, 6, 7)} == {"failure"}
    assert ran["test_sizes[wrong"].outcome == "failure"
