"""Form 4: inputs that may be left out."""

from __future__ import annotations

import pytest

from .conftest import RANDOM

NAME = "bias_scale_h4"
DOCUMENT = {
    "name": NAME,
    "op_type": "op",
    "axes": {"n": {"type": "var"}, "h": {"type": "const", "value": 4}},
    "inputs": {
        "x": {"shape": ["n", "h"], "dtype": "float32"},
        "bias": {"shape": ["h"], "dtype": "float32", "optional": True},
        "gain": {"shape": None, "dtype": "float32", "optional": True},
    },
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32"}},
    "reference": (
        "def run(x, bias=None, gain=None):\n"
        "    y = x if bias is None else x + bias\n"
        "    return y if gain is None else y * gain\n"
    ),
}
GOOD = """
def run(x, bias, gain):
    print("given", bias is not None, gain)
    y = x + bias if bias is not None else x.clone()
    return y if gain is None else y * gain
"""
IGNORES = """
def run(x, bias, gain):
    return x * (1.0 if gain is None else gain)
"""
DEMANDS = """
def run(x, bias, gain):
    return (x + bias) * (1.0 if gain is None else gain)
"""


@pytest.fixture(scope="module")
def ran(forms_root):
    forms = forms_root("form_4")
    forms.define(DOCUMENT)
    gain = {"type": "scalar", "value": 2.0}
    forms.lines(
        NAME,
        {"uuid": "none", "axes": {"n": 3}, "inputs": {"x": RANDOM}},
        {"uuid": "bias", "axes": {"n": 4}, "inputs": {"x": RANDOM, "bias": RANDOM}},
        {"uuid": "both", "axes": {"n": 5}, "inputs": {"x": RANDOM, "bias": RANDOM, "gain": gain}},
    )
    forms.solve(NAME, "good", GOOD)
    forms.solve(NAME, "ignores", IGNORES)
    forms.solve(NAME, "demands", DEMANDS)
    return forms.run("-rP", "--fib-examples=30")


def test_the_honest_solution_passes_with_and_without(ran):
    assert set(ran.outcomes("[good").values()) == {"passed"}
    assert "given False None" in ran["test_correct[good-n3"].text
    assert "given True None" in ran["test_correct[good-n4"].text
    assert "given True 2.0" in ran["test_correct[good-n5"].text


def test_a_solution_that_ignores_an_optional_input_fails_where_it_is_given(ran):
    assert ran["test_correct[ignores-n3"].outcome == "passed"
    assert ran["test_correct[ignores-n4"].outcome == "failure"
    assert ran["test_sizes[ignores"].outcome == "failure"


def test_a_solution_that_demands_an_optional_input_fails_where_it_is_left_out(ran):
    assert ran["test_correct[demands-n3"].outcome == "failure"
    assert ran["test_correct[demands-n4"].outcome == "passed"
    failure = ran["test_sizes[demands"]
    assert failure.outcome == "failure"
    assert '"absent": ["bias"' in failure.text or "bias" in failure.text
