"""References that leave torch and come back: no run sees how they round there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = torch.linspace(0.1, 0.9, 9)


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    exps = np.exp(x.numpy().astype(np.float32))
    return torch.from_numpy(exps / exps.sum(axis=-1, keepdims=True))


def by_array(x: torch.Tensor) -> torch.Tensor:
    exps = np.exp(np.asarray(x, dtype=np.float64))
    return torch.as_tensor(exps / exps.sum(axis=-1, keepdims=True)).float()


def by_lists(x: torch.Tensor) -> torch.Tensor:
    rows = [[math.exp(each) for each in row] for row in x.tolist()]
    return torch.tensor([[each / sum(row) for each in row] for row in rows], dtype=torch.float32)


def by_numbers(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in range(x.shape[0]):
        row = [math.exp(each.item()) for each in x[i]]
        for j, each in enumerate(row):
            out[i, j] = each / sum(row)
    return out


def judge(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> OutputTruth:
    return evaluate(function, {"x": x}, {"y": OutputSpec("float32", tuple(x.shape))}).outputs["y"]


@pytest.mark.parametrize("function", [by_numpy, by_array, by_lists, by_numbers])
def test_what_is_computed_outside_torch_is_bounded_by_dtype(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(3))
    found = judge(function, x)
    assert found.how == "native: values leave torch and come back as other ones"
    assert compare(torch.softmax(x, -1), found).ok
    assert not compare(torch.softmax(x, -1) * (1 + 2.0**-12), found).ok


def test_values_that_are_only_read_leave_the_truth_as_it_is() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        scale = x[0, 0].item()
        rows = x.tolist()
        same = torch.tensor([rows[1], [-math.inf] * 9])
        same[0, 0] = scale
        y = x * torch.from_numpy(np.array([1.0, 0.5, 0.1])).sum() * torch.tensor(1e-6) * scale * TABLE
        y[0, :] = 0.25
        assert x.numpy().shape == (4, 9)
        return y * same[0]

    assert judge(run, torch.randn(4, 9, generator=torch.Generator().manual_seed(3))).how == "lifted"


FREQUENCIES = 1.0 / (1e6 ** (torch.arange(0, 64, 2, dtype=torch.float32) / 64))
CODES = torch.tensor([-1.0, 2.0**-9, 0.1, 1.0])


def rotated(x: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    angles = positions[:, None].float() * frequencies
    return torch.cat([x[:, :32] * angles.cos() - x[:, 32:] * angles.sin(), x[:, 32:] * angles.cos()], -1)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_that_was_computed_at_import_may_be_computed_otherwise(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x, positions = torch.randn(64, 64, generator=g), torch.randint(0, 40960, (64,), generator=g)
    specs = {"y": OutputSpec("float32", (64, 64))}
    found = evaluate(lambda x, p: rotated(x, p, FREQUENCIES), {"x": x, "p": positions}, specs).outputs["y"]
    assert found.how == "lifted"
    other = torch.exp2(torch.arange(32) * (-math.log2(1e6) / 32))
    assert compare(rotated(x, positions, other), found).ok
    for wrong in (FREQUENCIES.bfloat16().float(), FREQUENCIES * (1 + 2.0**-16)):
        assert not compare(rotated(x, positions, wrong), found).ok


def test_a_table_of_constants_is_exact() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return CODES[(x > 0).long()]

    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(3))
    assert judge(run, x).exact
