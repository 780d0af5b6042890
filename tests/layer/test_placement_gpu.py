"""Small cases of a card's run: inputs are made on the host and stay there, and truths come to lie there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.cases.default_inputs import HOST_ELEMENTS, DefaultInputs
from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.oracle.answers import Answers
from pytest_flashinfer.worker.case import Case
from pytest_flashinfer.worker.pool import Pool

pytestmark = pytest.mark.gpu
ROWS = TensorSpec(("n", "h"), "float32")
DEFINITION = Definition(
    "rows",
    "norm",
    {"n": Axis("var"), "h": Axis("const", 64)},
    {"x": ROWS},
    {"y": ROWS},
    "import torch\n\n\ndef run(x):\n    return torch.softmax(x, -1)\n",
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    pool = Pool("cuda:0", cache=tmp_path_factory.mktemp("cache"))
    made = Answers(pool, DEFINITION, timeout=60)
    yield made
    made.close()
    pool.close()


def case_of(n, seed=1):
    recipe = Recipe(seed)
    values = DefaultInputs(DEFINITION, "cuda:0", None)({"n": n}, recipe)
    return Case(DEFINITION, {"n": n, "h": 64}, recipe, values, {"y": (n, 64)})


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_inputs_lie_where_they_are_made(layout):
    for n, device in ((3, "cpu"), (HOST_ELEMENTS // 128, "cpu"), (HOST_ELEMENTS // 64, "cuda:0")):
        made = DefaultInputs(DEFINITION, "cuda:0", None)({"n": n}, Recipe(1, layout=layout))["x"]
        assert str(made.device) == device
        assert made.is_contiguous() == (layout == "contiguous")


def test_small_inputs_are_the_same_as_without_a_card():
    made, known = (DefaultInputs(DEFINITION, device, None)({"n": 5}, Recipe(7)) for device in ("cuda:0", "cpu"))
    assert torch.equal(made["x"], known["x"])


def test_truths_of_small_and_large_cases_take_turns(answers):
    """In full the card finds them, also where they come to lie on the host."""
    for n, device in ((4, "cpu"), (1 << 12, "cuda"), (5, "cpu"), (1 << 8, "cpu"), (4, "cpu"), (1 << 13, "cuda")):
        case = case_of(n, seed=n)
        found = answers.answer(case).outputs["y"]
        want = torch.softmax(case.values["x"].double(), -1).cpu()
        assert found.native.device.type == found.allowance.device.type == device
        assert bool(((found.wide.cpu() - want).abs() <= found.allowance.cpu()).all())
        native = answers.answer(replace(case, variant="other", bound_of=case)).outputs["y"]
        assert native.native.device.type == device
        assert torch.equal(native.native, found.native)
        own = answers.in_full(case).outputs["y"]
        assert own.native.device.type == device
        assert bool(((own.wide.cpu() - want).abs() <= own.allowance.cpu()).all())
