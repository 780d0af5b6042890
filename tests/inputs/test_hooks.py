"""Inputs that a definition makes itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.hooks import by_input, call_custom, call_init
from tests.inputs.contracts import RAGGED, STEP

INIT = """
import torch
def _ones(n):
    return torch.ones(n, 8)
def _step_init(*, n, device="cuda", seed=0):
    return {"x": _ones(n).to(device) + seed}
"""


def test_init_is_called_with_the_axes_it_asks_for():
    made = call_init(replace(STEP, init=INIT), {"n": 3, "h": 8}, device="cpu", seed=2)
    assert torch.equal(made["x"], torch.full((3, 8), 3.0))


def test_arguments_of_both_steps_are_returned_together():
    source = "def f_init(*, n):\n    return {'plan': {'a': n}, 'run': {'b': 2}}"
    assert call_init(replace(STEP, init=source), {"n": 3}, device="cpu", seed=0) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "no function"),
        ("def f(", "no function"),
        ("def f(*, rows): return {}", "asks for `rows`"),
        ("def f(*, n): return 1 / 0", "ZeroDivisionError"),
        ("def f(*, n): return 3", "returned int"),
        ("import no_such_module\ndef f(): return {}", "does not load"),
    ],
)
def test_an_init_that_fails_says_why_in_one_line(source, message):
    with pytest.raises(InputsError, match=message) as caught:
        call_init(replace(STEP, init=source), {"n": 1}, device="cpu", seed=0)
    assert "\n" not in str(caught.value)


def test_the_custom_entry_point_gets_sizes_and_device():
    source = "def mine(sizes, device):\n    return {'x': (sizes['n'], device)}"
    definition = replace(STEP, reference=source, custom_inputs="mine")
    assert call_custom(definition, {"n": 4}, device="cpu") == {"x": (4, "cpu")}
    with pytest.raises(InputsError, match="no function `other`"):
        call_custom(replace(definition, custom_inputs="other"), {}, device="cpu")
    with pytest.raises(InputsError, match="custom_inputs_entrypoint"):
        call_custom(STEP, {}, device="cpu")


def test_arguments_are_matched_with_inputs():
    assert by_input(RAGGED, {"X": 1, "indptr": 2, "other": 3}) == {"x": 1, "indptr": 2}
    assert by_input(RAGGED, {"pair": (1, 2)}) == {"x": 1, "indptr": 2}
