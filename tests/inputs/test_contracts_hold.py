"""Whatever is drawn satisfies every constraint, and the references run on it and stay finite."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.sizes.axes import output_shapes, solve_axes
from pytest_flashinfer.inputs.sizes.strategies import case_strategy, edge_cases
from tests.inputs.contracts import ALL, call, finite

# Rows without keys, by a mask or by length, more queries than keys, or nothing to do at all: only where the reference
# gives finite results.
SPECIAL_STRUCTURES = frozenset({"no_kv", "q_longer", "blank", "all_padded"})
PLAIN = ("normal", "ties", "zero_rows")


def check(definition, axes, recipe):
    inputs = make_inputs(definition, axes, recipe)
    assert list(inputs) == list(definition.inputs)
    env = {**axes, **inputs}
    for text in definition.constraints:
        expression = parse(text)
        try:
            assert expression.tree is None or expression.holds(env), (text, axes, recipe)
        except ConstraintError:
            assert 0 in axes.values()  # the greatest of no elements
    assert solve_axes(definition, axes) == axes
    return inputs


@pytest.mark.parametrize("definition", ALL, ids=lambda d: d.name)
def test_every_edge_is_valid_and_the_reference_runs_on_it(definition):
    edges = edge_cases(definition, max_elements=1 << 12, limit=40)
    assert len(edges) > 10
    for axes, recipe in edges:
        inputs = check(definition, axes, recipe)
        if recipe.structure in SPECIAL_STRUCTURES or recipe.family not in PLAIN:
            continue
        outputs = call(definition, inputs)
        for spec, out in zip(definition.outputs.values(), outputs, strict=True):
            assert out.dtype == getattr(torch, spec.dtype, torch.uint8)
        shapes = list(output_shapes(definition, axes).values())
        assert [tuple(out.shape) for out in outputs] == shapes
        assert recipe.structure == "stale_nan" or finite(outputs), (axes, recipe)


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_draws_are_valid_too(data):
    definition = data.draw(st.sampled_from(ALL))
    axes, recipe = data.draw(case_strategy(definition, max_elements=1 << 11))
    inputs = check(definition, axes, recipe)
    if recipe.family == "normal" and recipe.structure not in SPECIAL_STRUCTURES:
        assert finite(call(definition, inputs))
