"""Of the op_type `sampling` are references that draw nothing, too: their ids are right or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.handler import build
from pytest_flashinfer.judge.oracle.truth import SAMPLED, OutputSpec

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.judge.oracle.truth import Truth

ROWS, IDS = 24, 31
LOGITS = torch.randn(ROWS, IDS, generator=torch.Generator().manual_seed(4))
SORTED = "torch.sort(x, dim=-1, descending=True, stable=True)[1][:, 0]"


def truth_of(folder: Path, line: str, head: str = "import torch", name: str = "x") -> Truth:
    source = f"{head}\n\n@torch.no_grad()\ndef run({name}):\n    return {line.replace('(x', f'({name}')}\n"
    reference = build({"reference": source}, folder, "cpu").function
    return evaluate(reference, {name: LOGITS}, {"ids": OutputSpec("int64", (ROWS,))}, sampling=True)


@pytest.mark.parametrize(
    "line", ["torch.argmax(x, -1)", SORTED, "torch.softmax(x, -1).cumsum(-1).gt(0.5).int().argmax(-1)"]
)
def test_ids_that_nothing_draws_are_compared(tmp_path: Path, line: str) -> None:
    truth = truth_of(tmp_path, line)
    assert truth.how == "lifted"
    [ids] = truth.outputs.values()
    assert ids.native is not None
    assert compare(ids.native, ids).ok
    other = ids.native.clone()
    other[5] = (other[5] + 1) % IDS
    found = compare(other, ids)
    assert not found.ok
    assert found.n_bad == 1


def test_which_of_nearly_equal_ones_is_the_likeliest_is_left_open(tmp_path: Path) -> None:
    [ids] = truth_of(tmp_path, "torch.argmax(torch.softmax(x * 1e-8, -1), -1)").outputs.values()
    assert ids.undecided is not None


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ("torch.argmax(x - torch.empty_like(x).exponential_().log(), -1)", "import torch"),
        ("torch.argmax(torch.nn.functional.dropout(x, 0.5), -1)", "import torch"),
        ("torch.argmax(x + torch.rand(x.shape), -1)", "import torch"),
        ("torch.argmax(x + torch.from_numpy(numpy.random.rand(*x.shape)), -1)", "import numpy, torch"),
        (
            "torch.tensor([random.randrange(31) for _ in x])",
            "import torch\nfrom random import Random\nrandom = Random()",
        ),
        ("torch.tensor([__import__('random').randrange(31) for _ in x])", "import torch"),
        ("torch.argmax(x, -1)", "import torch, kernels_of_somebody"),
    ],
)
def test_what_draws_or_may_draw_is_a_sampler(
    tmp_path: Path, line: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kernels_of_somebody", torch)
    truth = truth_of(tmp_path, line, head)
    assert truth.how == SAMPLED
    [ids] = truth.outputs.values()
    assert compare((torch.as_tensor(ids.native) + 1) % IDS, ids, inputs={"x": LOGITS}).ok


def test_random_numbers_that_are_given_may_be_used_in_another_way(tmp_path: Path) -> None:
    assert truth_of(tmp_path, "torch.argmax(x, -1)", name="uniform_samples").how == SAMPLED


def test_a_function_without_a_source_may_draw() -> None:
    truth = evaluate(torch.argmax, {"input": LOGITS, "dim": -1}, {"ids": OutputSpec("int64", (ROWS,))}, sampling=True)
    assert truth.how == SAMPLED
