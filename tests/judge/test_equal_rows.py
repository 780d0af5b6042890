"""A bag that names one row again and again: a loop over its ids errs by the same amount each time."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec

WIDTH = 32


def bag(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return table[ids].mean(0)


@pytest.mark.parametrize("count", [300, 1000, 2174, 4000])
@pytest.mark.parametrize("seed", range(3))
def test_ids_that_are_added_one_by_one_may_be_equal(count: int, seed: int) -> None:
    given = {
        "table": torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(seed)),
        "ids": torch.zeros(count, dtype=torch.int64),
    }
    truth = evaluate(bag, given, {"out": OutputSpec("float32", (WIDTH,))}).outputs["out"]
    library = torch.nn.functional.embedding_bag(given["ids"], given["table"], torch.tensor([0]), mode="mean")[0]
    assert compare(library, truth).ok
    one_by_one = torch.zeros(WIDTH)
    for each in given["ids"]:
        one_by_one += given["table"][each]
    assert compare(one_by_one / count, truth).ok
    assert not compare(library.bfloat16().float(), truth).ok
    assert not compare(library.half().float(), truth).ok
