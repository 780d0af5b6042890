"""References that draw numbers themselves: wide runs have the numbers that the reference as it is has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (6, 32)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def written_in_place(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(x.shape[0], 2 * x.shape[1], dtype=x.dtype)
    y[:, ::2].normal_(generator=seeded())
    y[:, 1::2] = x
    return y[:, ::2] + y[:, 1::2]


DRAWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda x: 100 * x + torch.rand(x.shape, generator=seeded()),
    "rand of x's dtype": lambda x: x + torch.rand(x.shape, generator=seeded(), dtype=x.dtype),
    "randn": lambda x: x @ torch.randn(32, 32, generator=seeded()).to(x.dtype),
    "randn_like": lambda x: x + torch.randn_like(x),
    "half of another dtype": lambda x: x + torch.randn_like(x, dtype=torch.float16).to(x.dtype),
    "out": lambda x: x + torch.rand(SHAPE, out=torch.empty(SHAPE)),
    "in place": written_in_place,
    "uniform_": lambda x: x + torch.empty_like(x).uniform_(-1, 1),
    "normal": lambda x: x + torch.normal(0.0, 1.0, SHAPE, generator=seeded()),
    "normal around x": lambda x: torch.normal(x, 1.0),
    "exponential_": lambda x: x + torch.empty(SHAPE).exponential_(),
    "geometric_": lambda x: x + torch.empty(SHAPE).geometric_(0.5),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full(SHAPE, 0.5)),
    "bernoulli_": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "randint": lambda x: x * torch.randint(0, 5, SHAPE),
    "randint of floats": lambda x: x * torch.randint(0, 5, SHAPE, dtype=torch.float32),
    "randperm": lambda x: x[torch.randperm(6)],
    "multinomial": lambda x: x + torch.multinomial(torch.softmax(x.float(), -1), 32),
    "poisson": lambda x: x + torch.poisson(torch.full(SHAPE, 3.0)),
    "dropout": lambda x: F.dropout(x, 0.4, training=True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.4, True)[0],  # noqa: FBT003
    "dropout of columns": lambda x: F.dropout1d(x, 0.4, training=True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "gumbel": F.gumbel_softmax,
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)[0],
    "module": lambda x: torch.nn.Linear(32, 32, dtype=x.dtype)(x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("run", DRAWN.values(), ids=DRAWN)
def test_wide_runs_draw_what_the_reference_draws(run: Callable[..., Any], dtype: torch.dtype) -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return run(x).to(x.dtype)

    x = torch.randn(SHAPE, generator=seeded(1)).to(dtype)
    truth = evaluate(rounded, {"x": x}, {"y": OutputSpec(name_of(dtype), SHAPE)})
    found = truth.outputs["y"]
    assert (truth.how, found.disputed) == ("lifted", 0)
    assert found.widened < 1.5
    assert compare(found.native, found).ok


def test_other_numbers_are_none_of_the_references() -> None:
    def run(x: torch.Tensor, seed: int = 3) -> torch.Tensor:
        return 100 * x + torch.rand(x.shape, generator=seeded(seed))

    x = torch.randn(64, 64, generator=seeded(1))
    found = evaluate(run, {"x": x}, {"y": OutputSpec("float32", (64, 64))}).outputs["y"]
    assert compare(run(x), found).ok
    for wrong in (run(x, 4), 100 * x, 100 * x + 0.5):
        assert not compare(wrong, found).ok
