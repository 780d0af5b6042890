"""Axes that only outputs use: the reference says how large they are."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .conftest import RANDOM

NAME = "windows"
DOCUMENT = {
    "name": NAME,
    "op_type": "op",
    "axes": {"n": {"type": "var"}, "h": {"type": "const", "value": 4}, "w": {"type": "var"}, "k": {"type": "var"}},
    "inputs": {"x": {"shape": ["n", "h"], "dtype": "float32"}},
    "outputs": {
        "y": {"shape": ["w", "h"], "dtype": "float32"},
        "kept": {"shape": ["k"], "dtype": "int64"},
    },
    "reference": dedent(
        """
        import torch

        def run(x):
            return x[: x.shape[0] // 2 + 1] * 2, (x[:, 0] > 0).nonzero().flatten()
        """
    ),
}
GOOD = """
def run(x):
    return x[: x.shape[0] // 2 + 1] * 2, (x[:, 0] > 0).nonzero()[:, 0].clone()
"""
WRITES = """
def run(x, y, kept):
    y.copy_(x[: y.shape[0]] * 2)
    kept.copy_((x[:, 0] > 0).nonzero()[:, 0])
"""
SHORT = """
def run(x):
    return x[: x.shape[0] // 2] * 2, (x[:, 0] > 0).nonzero()[:, 0].clone()
"""


@pytest.fixture(scope="module")
def ran(forms_root):
    forms = forms_root("output_axes")
    forms.define(DOCUMENT)
    forms.lines(NAME, {"uuid": "one", "axes": {"n": 9}, "inputs": {"x": RANDOM}})
    forms.solve(NAME, "good", GOOD)
    forms.solve(NAME, "writes", WRITES, destination=True)
    forms.solve(NAME, "short", SHORT)
    return forms.run("-rA", "--fib-examples=12")


def test_shapes_come_from_the_reference(ran):
    assert ran["test_reference"].outcome == "passed"
    assert ran["test_schema"].outcome == "passed"
    for name in ("good", "writes"):
        assert set(ran.outcomes(f"[{name}").values()) == {"passed"}


def test_another_shape_is_wrong(ran):
    assert ran["test_correct[short"].outcome == "failure"
    assert "INCORRECT_SHAPE" in ran["test_correct[short"].text
    assert ran["test_sizes[short"].outcome == "failure"
