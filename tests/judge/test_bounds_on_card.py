"""A bound is found by the same runs on every device: a card's is as large as the host's, for all shipped references."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.sizes.axes import output_shapes
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.judge.oracle import handler
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec

PATHS = sorted((Path(__file__).parents[2] / "definitions").rglob("*.json"))
CASES = 4
LARGEST = 1 << 22  # elements of all inputs: weights of mixtures of experts have more
APART = 8.0  # both are estimates


@pytest.mark.gpu
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_card_finds_the_bounds_of_the_host(path):
    definition = load_definition(path).value
    if definition.op_type == "sampling":
        pytest.skip("what is drawn has no bound")
    handler.warm("cuda:0")
    module = {}
    exec(definition.reference, module)
    seen = 0
    for axes, recipe in edge_cases(definition, seed=3)[: 2 * CASES]:
        try:
            inputs = make_inputs(definition, axes, recipe)
        except InputsError:
            continue
        tensors = [x for x in inputs.values() if isinstance(x, torch.Tensor)]
        shapes = output_shapes(definition, axes)
        if sum(x.numel() for x in tensors) > LARGEST or any(shape is None for shape in shapes.values()):
            continue
        specs = {name: OutputSpec(spec.dtype, shapes[name]) for name, spec in definition.outputs.items()}
        there = {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
        host, card = (evaluate(module[definition.entry], each, specs, seed=1) for each in (inputs, there))
        for name, one in host.outputs.items():
            other = card.outputs[name]
            if one.allowance is None or other.allowance is None or not one.allowance.numel():
                continue
            mine, theirs = (float(each.allowance.double().mean()) for each in (one, other))
            assert theirs <= APART * mine, f"{name} at {axes}, {recipe}"
            assert mine <= APART * theirs, f"{name} at {axes}, {recipe}"
            seen += 1
        if seen >= CASES:
            break
    if not seen:
        pytest.skip("no output with a bound at small sizes")
