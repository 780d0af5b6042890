"""Operations of several roundings, each beside other ways to find it in float32: those are honest, 0.1 % off is not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import sigmoid

from pytest_flashinfer.inputs.floats import families
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[..., Any]

BF16, FP32 = torch.bfloat16, torch.float32
ROWS, COLUMNS = 6, 96
FAMILIES = ("normal", "tiny", "offset", "constant_rows", "peaks", "positive", "zero_rows")
RELATED = ("equal", "near", "opposite")  # b and c are a, nearly a, and nearly -a


def drawn(family: str, dtype: torch.dtype, count: int, rows: int = ROWS) -> list[torch.Tensor]:
    found = []
    for each in range(count):
        x = torch.empty((rows, COLUMNS), dtype=dtype)
        name = "normal" if family in RELATED else family
        families.fill(x, name, torch.Generator().manual_seed(7 + 100 * each), torch.Generator().manual_seed(1007))
        found.append(x)
    if family in RELATED:
        apart = 0.0 if family == "equal" else 1e-4
        sign = -1 if family == "opposite" else 1
        found[1:] = [(sign * found[0].float() * (1 + apart * x.float())).to(dtype) for x in found[1:]]
    return found


def judge(reference: Way, inputs: list[torch.Tensor]) -> OutputTruth:
    y = reference(*inputs)
    spec = {"y": OutputSpec(name_of(y.dtype), tuple(y.shape))}
    return evaluate(reference, {f"x{at}": x for at, x in enumerate(inputs)}, spec).outputs["y"]


def scaled(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)


def above(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)


def log_of_one_more(x: torch.Tensor) -> torch.Tensor:
    return torch.log1p(torch.exp(-x.abs()))


def apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a[:, None] - b[None]).square().sum(-1).sqrt()


def crossed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (a0, a1, a2), (b0, b1, b2) = a[:, :3].unbind(-1), b[:, :3].unbind(-1)
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)


def of_weight(z: torch.Tensor) -> torch.Tensor:
    return sigmoid(z[:, :1])


# by name: how many inputs, the reference, and other ways to find the same
WAYS: dict[str, tuple[int, Way, tuple[Way, ...]]] = {
    "lerp": (
        3,
        torch.lerp,
        (
            lambda a, b, w: torch.addcmul(a, w, b - a),
            lambda a, b, w: a * (1 - w) + b * w,
            lambda a, b, w: b - (b - a) * (1 - w),
        ),
    ),
    "lerp of rows": (
        3,
        lambda a, b, w: torch.lerp(a, b, w[:, :1]),
        (lambda a, b, w: a + w[:, :1] * (b - a), lambda a, b, w: a * (1 - w[:, :1]) + b * w[:, :1]),
    ),
    "lerp by a number": (
        2,
        lambda a, b: torch.lerp(a, b, 0.9),
        (lambda a, b: a + 0.9 * (b - a), lambda a, b: 0.1 * a + 0.9 * b),
    ),
    "lerp_": (
        2,
        lambda a, b: a.clone().lerp_(b, 0.3),
        (lambda a, b: a + 0.3 * (b - a), lambda a, b: 0.7 * a + 0.3 * b),
    ),
    "addcmul": (
        3,
        lambda a, b, c: torch.addcmul(a, b, c, value=0.3),
        (lambda a, b, c: a + 0.3 * b * c, lambda a, b, c: a + b * (c * 0.3)),
    ),
    "addcdiv": (
        3,
        lambda a, b, c: torch.addcdiv(a, b, c.abs() + 0.5, value=0.3),
        (lambda a, b, c: a + 0.3 * (b / (c.abs() + 0.5)), lambda a, b, c: a + b * (0.3 / (c.abs() + 0.5))),
    ),
    "moving average": (
        2,
        lambda a, b: a.mul(0.9).add(b, alpha=0.1),
        (lambda a, b: a + 0.1 * (b - a), lambda a, b: torch.lerp(b, a, 0.9)),
    ),
    "hypot": (2, torch.hypot, (lambda a, b: (a * a + b * b).sqrt(),)),
    "logaddexp": (2, torch.logaddexp, (lambda a, b: torch.maximum(a, b) + log_of_one_more(a - b),)),
    "logaddexp2": (
        2,
        torch.logaddexp2,
        (lambda a, b: torch.maximum(a, b) + torch.log2(1 + torch.exp2(-(a - b).abs())),),
    ),
    "softshrink": (1, lambda x: F.softshrink(x, 0.3), (lambda x: above(x - 0.3) - above(-x - 0.3),)),
    "tanhshrink": (1, F.tanhshrink, (lambda x: x - torch.tanh(x),)),
    "gelu": (
        1,
        F.gelu,
        (lambda x: 0.5 * x * (1 + torch.erf(x * 0.5**0.5)), lambda x: 0.5 * x * torch.erfc(-x * 0.5**0.5)),
    ),
    "gelu by tanh": (
        1,
        lambda x: F.gelu(x, approximate="tanh"),
        (
            lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3))),
            lambda x: x * sigmoid(1.59576912 * x * (1 + 0.044715 * x * x)),
        ),
    ),
    "silu": (1, F.silu, (lambda x: x / (1 + torch.exp(-x)),)),
    "glu": (1, F.glu, (lambda x: x[:, :48] / (1 + torch.exp(-x[:, 48:])),)),
    "mish": (1, F.mish, (lambda x: x * torch.tanh(above(x) + log_of_one_more(x)),)),
    "hardswish": (
        1,
        F.hardswish,
        (lambda x: x * (x / 6 + 0.5).clamp(0, 1), lambda x: x * ((x + 3).clamp(0, 6) * (1 / 6))),
    ),
    "hardsigmoid": (1, F.hardsigmoid, (lambda x: (x / 6 + 0.5).clamp(0, 1),)),
    "selu": (1, F.selu, (lambda x: 1.05070099 * torch.where(x > 0, x, 1.67326324 * torch.expm1(x)),)),
    "celu": (1, lambda x: F.celu(x, 1.3), (lambda x: above(x) - above(-1.3 * torch.expm1(x / 1.3)),)),
    "softplus": (1, lambda x: F.softplus(x, beta=2.5), (lambda x: above(x) + log_of_one_more(2.5 * x) / 2.5,)),
    "log_sigmoid": (1, F.logsigmoid, (lambda x: -above(-x) - log_of_one_more(x),)),
    "softsign": (1, F.softsign, (lambda x: x * (1 / (1 + x.abs())),)),
    "normalize": (
        1,
        lambda x: F.normalize(x, dim=-1),
        (lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True).clamp_min(1e-24)),),
    ),
    "cosine": (
        2,
        lambda a, b: F.cosine_similarity(a, b, dim=-1),
        (
            lambda a, b: (a * b).sum(-1) / (a.norm(dim=-1).clamp_min(1e-8) * b.norm(dim=-1).clamp_min(1e-8)),
            lambda a, b: (F.normalize(a, dim=-1, eps=1e-8) * F.normalize(b, dim=-1, eps=1e-8)).sum(-1),
        ),
    ),
    "layer_norm": (1, lambda x: F.layer_norm(x, x.shape[-1:]), (scaled,)),
    "rms_norm": (
        1,
        lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
        (lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt(),),
    ),
    "group_norm": (1, lambda x: F.group_norm(x, 4), (lambda x: scaled(x.reshape(-1, 4, 24)).view_as(x),)),
    "var": (1, lambda x: x.var(-1), (lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / 95,)),
    "std": (1, lambda x: x.std(-1), (lambda x: ((x - x.mean(-1, keepdim=True)).square().sum(-1) / 95).sqrt(),)),
    "norm": (1, lambda x: x.norm(dim=-1), (lambda x: x.square().sum(-1).sqrt(),)),
    "third norm": (1, lambda x: torch.linalg.vector_norm(x, 3, dim=-1), (lambda x: x.abs().pow(3).sum(-1).pow(1 / 3),)),
    "renorm": (
        1,
        lambda x: torch.renorm(x, 2, 0, 1.0),
        (lambda x: x * (1 / (x.norm(dim=-1, keepdim=True) + 1e-7)).clamp(max=1),),
    ),
    "cross": (2, lambda a, b: torch.linalg.cross(a[:, :3], b[:, :3]), (crossed,)),
    "dist": (2, torch.dist, (lambda a, b: (a - b).square().sum().sqrt(),)),
    "pairwise distance": (2, F.pairwise_distance, (lambda a, b: (a - b + 1e-6).square().sum(-1).sqrt(),)),
    "linear interpolation": (
        1,
        lambda x: F.interpolate(x[:, None], size=37, mode="linear")[:, 0],
        (lambda x: F.interpolate(x.double()[:, None], size=37, mode="linear")[:, 0].float(),),
    ),
    "bilinear interpolation": (
        1,
        lambda x: F.interpolate(x.reshape(-1, 1, 8, 12), size=(11, 17), mode="bilinear"),
        (lambda x: F.interpolate(x.double().reshape(-1, 1, 8, 12), size=(11, 17), mode="bilinear").float(),),
    ),
    "pooling": (
        1,
        lambda x: F.avg_pool1d(x[:, None], 3, 1)[:, 0],
        (lambda x: x[:, :-2] * (1 / 3) + x[:, 1:-1] * (1 / 3) + x[:, 2:] * (1 / 3),),
    ),
    "smooth_l1": (
        2,
        lambda a, b: F.smooth_l1_loss(a, b, beta=0.7, reduction="none"),
        (lambda a, b: torch.where((a - b).abs() < 0.7, 0.5 / 0.7 * (a - b).square(), (a - b).abs() - 0.35),),
    ),
    "huber": (
        2,
        lambda a, b: F.huber_loss(a, b, delta=0.7, reduction="none"),
        (lambda a, b: torch.where((a - b).abs() <= 0.7, 0.5 * (a - b).square(), 0.7 * (a - b).abs() - 0.245),),
    ),
    "huber, its mean": (
        2,
        lambda a, b: F.huber_loss(a, b, delta=0.7),
        (lambda a, b: torch.where((a - b).abs() <= 0.7, 0.5 * (a - b).square(), 0.7 * (a - b).abs() - 0.245).mean(),),
    ),
    "mse": (2, lambda a, b: F.mse_loss(a, b, reduction="none"), (lambda a, b: (a - b).square(),)),
    "mse, its sum": (2, lambda a, b: F.mse_loss(a, b, reduction="sum"), (lambda a, b: (a - b).square().sum(),)),
    "kl_div": (
        2,
        lambda a, b: F.kl_div(a, sigmoid(b), reduction="none"),
        (lambda a, b: sigmoid(b) * (sigmoid(b).log() - a),),
    ),
    "nll of a gaussian": (
        3,
        lambda a, b, c: F.gaussian_nll_loss(a, b, c.abs() + 0.1, reduction="none"),
        (lambda a, b, c: 0.5 * (torch.log(c.abs() + 0.1) + (a - b).square() / (c.abs() + 0.1)),),
    ),
    "cross entropy": (
        1,
        lambda x: F.cross_entropy(x, torch.arange(len(x)), reduction="none"),
        (lambda x: torch.logsumexp(x, -1) - x.diagonal(),),
    ),
    "logcumsumexp": (
        1,
        lambda x: x[:, :9].logcumsumexp(-1),
        (lambda x: torch.stack([x[:, : end + 1].logsumexp(-1) for end in range(9)], -1),),
    ),
    "rsqrt": (1, lambda x: torch.rsqrt(x.abs() + 0.1), (lambda x: (1 / (x.abs() + 0.1)).sqrt(),)),
    "prod": (1, lambda x: x[:, :4].prod(-1), (lambda x: (x[:, 0] * x[:, 1]) * (x[:, 2] * x[:, 3]),)),
    "sinc": (1, torch.sinc, (lambda x: torch.where(x == 0, 1, torch.sin(math.pi * x) / (math.pi * x)),)),
}


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("name", WAYS)
def test_other_ways_are_within_the_bound_and_what_is_wrong_is_not(name: str, dtype: torch.dtype) -> None:
    count, reference, ways = WAYS[name]
    factor = 1.001 if dtype is FP32 else 1.02
    passing = True
    for family in (*FAMILIES, *(RELATED if count > 1 else ())):
        inputs = drawn(family, dtype, count)
        truth = judge(reference, inputs)
        assert truth.how == "lifted"
        for at, way in enumerate(ways):
            found = compare(way(*(x.float() for x in inputs)).to(dtype), truth, equal_nan=True)
            assert found.ok, f"{family}, {at}: {found.text}"
        right = truth.native
        assert right is not None
        passing &= compare((right.float() * factor).to(dtype), truth, equal_nan=True).ok
    assert not passing


@pytest.mark.parametrize("rows", [6, 40])  # the library multiplies differences out where there are more than 25 rows
@pytest.mark.parametrize("family", ["normal", "offset", "close", "near", "equal"])
def test_distances_may_be_found_from_differences_or_products(family: str, rows: int) -> None:
    a, b = drawn(family, FP32, 2, rows)
    truth = judge(torch.cdist, [a, b])
    assert truth.widened == 1.0
    product = a.square().sum(-1)[:, None] + b.square().sum(-1) - 2 * a @ b.T
    for found in (apart(a, b), apart(a.double(), b.double()).float(), product.clamp(min=0).sqrt()):
        assert compare(found, truth).ok, compare(found, truth).text
    assert family != "normal" or not compare(1.001 * apart(a, b), truth).ok


def written_out(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return a + w[:, :1] * (b - a)


@pytest.mark.parametrize("reference", [written_out, lambda a, b, w: torch.lerp(a, b, w[:, :1])])
def test_what_cancels_only_as_inputs_are_alike_is_not_exact(reference: Way) -> None:
    """b - a is 0 where both are drawn alike, which leaves a: a kernel rounds a * (1 - w) + b * w all the same."""
    for family in ("normal", "constant_rows", "offset", "tiny"):
        a, w = drawn(family, FP32, 2)
        w = sigmoid(w)
        truth = judge(reference, [a, a.clone(), w])
        assert not truth.exact
        assert compare(a * (1 - w[:, :1]) + a * w[:, :1], truth).ok
        assert not compare(a * (1 + 1e-5), truth).ok


@pytest.mark.parametrize(
    "reference",
    [
        lambda a, b, w: torch.lerp(a, b, 0.25),
        lambda a, b, w: torch.lerp(a, b, w.round()),
        lambda a, b, w: a + 0.25 * (b - a),
        lambda a, b, w: F.relu(a) + torch.maximum(b, w),
        lambda a, b, w: (a - b) * w,
        lambda a, b, w: F.mse_loss(a, b, reduction="sum"),
        lambda a, b, w: torch.linalg.cross(a[:, :3], b[:, :3]),
    ],
)
@pytest.mark.parametrize("alike", [True, False])
def test_whole_numbers_stay_exact(reference: Way, alike: bool) -> None:  # noqa: FBT001
    a, b, w = drawn("small_ints", FP32, 3)
    assert judge(reference, [a, a.clone() if alike else b, w]).exact


@pytest.mark.parametrize(
    "reference",
    [
        lambda a, b: (a - b).relu(),
        lambda a, b: torch.where((a - b).abs() > 0, b, a),
        lambda a, b: torch.maximum(a, b)[:, ::2],
        lambda a, b: F.interpolate(a[:, None], scale_factor=2.0)[:, 0],
        lambda a, b: a[((torch.arange(6.0) + 0.5) * 0.5).long()],
    ],
)
def test_what_moves_values_stays_exact_where_inputs_are_alike(reference: Way) -> None:
    a, _ = drawn("normal", FP32, 2)
    assert judge(reference, [a, a.clone()]).exact
