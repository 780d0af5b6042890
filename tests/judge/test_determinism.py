"""A reference that gives other results for the same inputs is told from one whose roundings differ from run to run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.oracle.determinism import demand_the_same
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec
from pytest_flashinfer.judge.reference.call import InvalidReferenceError, Reference

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: list[int] = []  # of a reference that counts them


def counted() -> int:
    CALLS.append(1)
    return len(CALLS)


def added(x: torch.Tensor) -> torch.Tensor:
    """Add rows up in any order, as atomics do."""
    total = torch.zeros_like(x[0])
    for row in random.sample(range(64), 64):
        total += x.repeat(4, 1)[row]
    return total


SAME: dict[str, Callable[..., Any]] = {
    "a function": lambda x: x * 2,
    "own generator": lambda x: x + torch.rand(x.shape, generator=torch.Generator().manual_seed(3)),
    "seeds itself": lambda x: x + torch.rand(torch.manual_seed(3) and x.shape),
    "NaN": lambda x: torch.where(x > 0, x, torch.nan),
    "infinite": lambda x: torch.where(x > 0, x, -torch.inf),
    "any order": lambda x: x * (1 + random.choice((-1, 1)) * 2.0**-23),
    "any order in the inputs' dtype": added,
    "ids": lambda x: x.argsort(-1),
    "draws in vain": lambda x: x + 0 * torch.rand(x.shape),
    "empty": lambda x: x[:0],
}
OTHER: dict[str, Callable[..., Any]] = {
    "draws": lambda x: x + torch.rand(x.shape),
    "dropout": lambda x: torch.dropout(x, 0.5, train=True),
    "counts": lambda x: x + counted(),
    "counts in factors": lambda x: x * counted(),
    "draws ids": lambda x: torch.randint(100, x.shape),
    "draws a mask": lambda x: torch.rand(x.shape) > 0.5,
    "NaN at times": lambda x: torch.where(torch.rand(x.shape) > 0.5, x, torch.nan),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def twice(function: Callable[..., Any], dtype: torch.dtype) -> None:
    CALLS.clear()
    inputs = {"x": torch.randn(16, 8, generator=torch.Generator().manual_seed(1)).to(dtype)}
    given = function(inputs["x"])
    specs = {"y": OutputSpec(str(given.dtype).removeprefix("torch."), tuple(given.shape))}
    demand_the_same(Reference(function, inputs, specs, seed=8), evaluate(function, inputs, specs, seed=9))


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_gives_the_same_but_for_rounding_is_a_reference(name: str, dtype: str) -> None:
    twice(SAME[name], DTYPES[dtype])


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_gives_something_else_is_none(name: str, dtype: str) -> None:
    said = r"^the reference gives other results for the same inputs: y\[\d+, \d\] is \S+ and then \S+$"
    with pytest.raises(InvalidReferenceError, match=said):
        twice(OTHER[name], DTYPES[dtype])
