"""Integers that no rounding can have moved, and values that are compared with themselves: both stay what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable

X = 20 * torch.randn(64, generator=torch.Generator().manual_seed(5))


def judge(
    function: Callable[..., Any], dtype: str, shape: tuple[int, ...] = (64,), **inputs: torch.Tensor
) -> OutputTruth:
    return evaluate(function, inputs or {"x": X}, {"y": OutputSpec(dtype, shape)}).outputs["y"]


def exponents(x: torch.Tensor) -> torch.Tensor:
    e = torch.floor(torch.log2(x.abs() + 1)) - 8
    _ = x * torch.exp2(-e)
    return (e + 127).to(torch.uint8)


def codes(x: torch.Tensor) -> torch.Tensor:
    q = torch.round(x) + 128
    _ = q * 0.5
    return q.clamp(0, 255).to(torch.uint8)


def neighbours(x: torch.Tensor) -> torch.Tensor:
    left = torch.floor(x)
    right = left + 1
    _ = (right - x) * left
    return right.long()


def best(x: torch.Tensor) -> torch.Tensor:
    scores = torch.round(x) + 3
    _ = scores * x
    return scores.view(8, 8).argmax(-1)


def counted(x: torch.Tensor) -> torch.Tensor:
    ids = torch.arange(64, dtype=torch.float32) - 32
    _ = ids * x
    return (ids >= 0).int()


def items(x: torch.Tensor) -> torch.Tensor:
    level = torch.round(x[0]) + 1
    _ = level * x
    return torch.full((64,), int(level.item()))


INTEGERS = {
    "exponents": (exponents, "uint8", (64,)),
    "codes": (codes, "uint8", (64,)),
    "neighbours": (neighbours, "int64", (64,)),
    "best": (best, "int64", (8,)),
    "counted": (counted, "int32", (64,)),
    "items": (items, "int64", (64,)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_are_multiplied_elsewhere_are_decided(name: str) -> None:
    found = judge(*INTEGERS[name])
    assert found.undecided is None, found.notes


SCALED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "exp2": lambda x, e: x * torch.exp2(-e),
    "divided": lambda x, e: x / torch.exp2(e),
    "special": lambda x, e: x * torch.special.exp2(-e),
    "power": lambda x, e: x * 2.0**-e,
    "pow": lambda x, e: x * torch.pow(2, -e),
    "tensors": lambda x, e: x * torch.pow(torch.full_like(e, 0.5), e),
    "integers": lambda x, e: x * 2.0 ** (-e).int(),
    "ldexp": lambda x, e: torch.ldexp(x, -e.int()),
}
EXPONENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "frexp": lambda x: torch.frexp(x)[1].float() - 3,
    "log2": lambda x: torch.floor(torch.log2(x)) - 2,
    "bits": lambda x: (x.view(torch.int32) >> 23).float() - 129,
}


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("scaled", SCALED)
def test_ties_of_what_is_scaled_by_powers_of_two_are_decided(scaled: str, exponent: str) -> None:
    x = torch.tensor([1.125, 3.25, 5.5, 6.5, 13.0, 18.0, 37.0, 1.0625]).repeat(8) * 1.25  # many end in a half
    found = judge(lambda x: torch.round(SCALED[scaled](x, EXPONENTS[exponent](x))).int(), "int32", x=x)
    assert found.undecided is None, found.notes


@pytest.mark.parametrize(
    "power", [lambda e: torch.exp(e * 0.6931471805599453), lambda e: torch.exp2(e / 3), lambda e: 3.0**e]
)
def test_of_what_is_scaled_by_other_powers_they_are_not(power: Callable[[torch.Tensor], torch.Tensor]) -> None:
    e = torch.arange(64.0) % 4
    x = (torch.arange(64) + 0.5) / power(e)
    found = judge(lambda x, e: torch.round(x * power(e)).int(), "int32", x=x, e=e)
    assert found.undecided is not None


def test_what_is_near_a_boundary_is_not() -> None:
    x = torch.round(X) + 0.5 + 1e-7 * torch.randn(64, generator=torch.Generator().manual_seed(1))
    found = judge(lambda x: torch.round(x / 3 * 3).to(torch.int32), "int32", x=x)
    assert found.undecided is not None


def test_a_product_of_an_integral_sum_may_be_taken_term_by_term() -> None:
    """A kernel may find (q - z) * s as one fused q * s - z * s: near 0 that is off by a rounding of z * s."""
    q, z, s = torch.arange(64.0), torch.tensor(37.0), torch.rand(64, generator=torch.Generator().manual_seed(2))
    found = judge(lambda q, z, s: (torch.round(q) - z) * s, "float32", q=q, z=z, s=s)
    kernel = torch.addcmul(-(z * s).double(), q.double(), s.double())
    assert found.wide is not None
    assert found.allowance is not None
    assert bool(((kernel - found.wide).abs() <= found.allowance).all())


def ranks(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    values = logits.log_softmax(dim=-1, dtype=torch.float32)
    return (values >= values.gather(-1, ids.unsqueeze(-1))).sum(-1)


def above(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    values = logits.exp()
    return (values > values.gather(-1, ids.unsqueeze(-1))).sum(-1)


def largest(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    values = torch.sigmoid(logits + ids.unsqueeze(-1) % 2)
    return (values == values.amax(-1, keepdim=True)).sum(-1)


@pytest.mark.parametrize("function", [ranks, above, largest], ids=lambda function: function.__name__)
def test_a_value_that_is_compared_with_itself_is_equal(function: Callable[..., Any]) -> None:
    generator = torch.Generator().manual_seed(4)
    logits, ids = torch.randn(20, 100, generator=generator), torch.randint(100, (20,), generator=generator)
    found = judge(function, "int64", (20,), logits=logits, ids=ids)
    assert found.undecided is None, found.notes


def test_values_that_differ_by_a_rounding_are_not() -> None:
    x = torch.rand(20, 8, generator=torch.Generator().manual_seed(6))
    found = judge(lambda x: (x * 3 >= x + x + x).sum(-1), "int64", (20,), x=x)
    assert found.undecided is not None


def started(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        total = make(x)
        for value in x:
            total += value * value
        return total

    return run


def set_to(x: torch.Tensor) -> torch.Tensor:
    made = torch.tensor([0.0, 0.0])
    made[1] = x.sum()
    return made


def into(x: torch.Tensor) -> torch.Tensor:
    made = torch.tensor(0.0)
    return torch.mul(x[0], x[1], out=made)


MADE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "tensor": (started(lambda _: torch.tensor(0.0)), lambda x: x.square().sum()),
    "as_tensor": (started(lambda _: torch.as_tensor(0.0)), lambda x: x.square().sum()),
    "new_tensor": (started(lambda x: x.new_tensor(0.0)), lambda x: x.square().sum()),
    "float64": (started(lambda _: torch.tensor(0.0, dtype=torch.float64)), lambda x: x.square().sum()),
    "detached": (started(lambda _: torch.tensor(0.0).detach()), lambda x: x.square().sum()),
    "view": (started(lambda _: torch.tensor([0.0]).view(())), lambda x: x.square().sum()),
    "set": (set_to, lambda x: torch.stack([torch.zeros((), dtype=x.dtype), x.sum()])),
    "out": (into, lambda x: x[0] * x[1]),
    "filled": (lambda x: torch.tensor([1.0, 2.0]).fill_(x[0] / 3), lambda x: (x[:1] / 3).expand(2)),
    "divided": (lambda x: torch.tensor([1.0, 2.0]).div_(x[0]), lambda x: torch.tensor([1.0, 2.0]).double() / x[0]),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_python_numbers_may_be_written_into(name: str) -> None:
    function, right = MADE[name]
    expected = right(X.double())
    dtype = "float64" if name == "float64" else "float32"
    found = judge(function, dtype, tuple(expected.shape), x=X.to(getattr(torch, dtype)))
    assert found.how == "lifted", found.notes
    assert found.wide is not None
    assert torch.allclose(found.wide, expected, rtol=1e-12)


def in_place(name: str) -> Callable[..., torch.Tensor]:
    def run(ids: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        total, long, ids = torch.zeros(4, dtype=torch.int64), n.long(), ids.long()
        if name == "index_add":
            total.index_add_(0, ids, long)
        elif name == "scatter_add":
            total.scatter_add_(0, ids, long)
        elif name == "scatter_reduce":
            total.scatter_reduce_(0, ids, long, "sum")
        elif name == "index_put":
            total.index_put_((ids,), long, accumulate=True)
        elif name == "index_reduce":
            total = (total + 1).index_reduce_(0, ids, long, "prod")
        elif name == "cumsum":
            total = long.clone().cumsum_(0)[-4:]
        elif name == "addmm":
            square = long[:4].repeat(4, 1)
            total = square.addmm_(square, square)[0]
        else:
            made = torch.empty_like(long)
            torch.cumsum(long, 0, out=made)
            total = made[-4:]
        return total.int()

    return run


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize(
    "name", ["index_add", "scatter_add", "scatter_reduce", "index_put", "index_reduce", "cumsum", "addmm", "out"]
)
def test_sums_of_integers_that_are_written_into_are_found_once(name: str) -> None:
    generator = torch.Generator().manual_seed(7)
    ids, n = (torch.randint(low, high, (10,), generator=generator).int() for low, high in ((0, 4), (1, 9)))
    found = judge(in_place(name), "int32", (4,), ids=ids, n=n)
    assert found.how == "lifted", found.notes
    assert found.undecided is None, found.notes
    assert found.native is not None
    assert torch.equal(found.native, in_place(name)(ids, n))


def test_a_mean_of_segments_is_divided_by_their_counts() -> None:
    def run(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(4, 3).index_add_(0, ids.long(), x)
        count = torch.zeros(4, dtype=torch.int64).index_add_(0, ids.long(), torch.ones_like(ids).long())
        return total / count.clamp(min=1).unsqueeze(1)

    generator = torch.Generator().manual_seed(8)
    x, ids = torch.randn(20, 3, generator=generator), torch.randint(0, 4, (20,), generator=generator).int()
    found = judge(run, "float32", (4, 3), x=x, ids=ids)
    assert found.wide is not None
    assert torch.allclose(found.wide, run(x, ids).double(), rtol=1e-5)
