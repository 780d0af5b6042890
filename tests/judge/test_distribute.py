"""A product may be distributed over a difference from what a row shares, and a variance found in one pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_flashinfer.inputs.floats import families
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle import distribute
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.lifted import tag
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .kernels import Kernel

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LOG2E = math.log2(math.e)
FAR = ("offset", "constant_rows", "close")  # rows whose mean is large beside what differs from it
PLAIN = ("normal", "tiny", "positive")


def drawn(family: str, dtype: torch.dtype, seed: int, shape: tuple[int, ...] = (3, 256)) -> torch.Tensor:
    x = torch.empty(shape, dtype=dtype)
    families.fill(x, family, torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1000))
    return x


def parameters(family: str, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (torch.randn(columns, generator=generator) for _ in range(2))
    return 1 + 0.1 * weight, (bias.round() / 2 if family == "constant_rows" else bias / 5)  # zeros show what is not


def judge(reference: Kernel, *inputs: torch.Tensor) -> OutputTruth:
    y = reference(*inputs)
    spec = {"y": OutputSpec(name_of(y.dtype), tuple(y.shape))}
    return evaluate(reference, {str(at): x for at, x in enumerate(inputs)}, spec).outputs["y"]


# --- layer norm: x [n, h], weight and bias [h]


def squares(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)


def one_pass(x: torch.Tensor) -> torch.Tensor:
    return ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()).clamp_min(0)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return one_pass(x - x[..., :1])


def unbiased(x: torch.Tensor) -> torch.Tensor:
    return x.var(-1, keepdim=True)


def norm(variance: Kernel = squares, *, fused: bool = False, eps: float = 1e-5, before: torch.dtype = FP32) -> Kernel:
    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        mean, scale = wide.mean(-1, keepdim=True), torch.rsqrt(variance(wide) + eps)
        if fused:  # as one multiply-add an element
            factor = scale * w
            shift = (b.double() - mean.double() * factor.double()).float()
            return (wide.double() * factor.double() + shift.double()).float().to(x.dtype)
        return (((wide - mean) * scale).to(before).float() * w + b).to(x.dtype)

    return run


REFERENCES: dict[str, Kernel] = {
    "squares": norm(),
    "variance": norm(lambda x: x.var(-1, keepdim=True, unbiased=False)),
    "variance and mean": norm(lambda x: torch.var_mean(x, -1, keepdim=True, correction=0)[0]),
    "deviation": norm(lambda x: x.std(-1, keepdim=True, unbiased=False).square()),
    "library": lambda x, w, b: F.layer_norm(x.float(), x.shape[1:], w, b, 1e-5).to(x.dtype),
}
HONEST = {
    "two passes": norm(),
    "fused": norm(fused=True),
    "one pass": norm(one_pass),
    "one pass from the first": norm(shifted),
    "both": norm(one_pass, fused=True),
}
WRONG = {
    "eps dropped": norm(eps=0.0),
    "eps a tenth": norm(eps=1e-6, fused=True),
    "unbiased": norm(unbiased),
    "rounded before the weight": norm(before=BF16),
    "bf16 squares": norm(lambda x: one_pass(x.bfloat16()).float()),
    "mean of fewer": norm(lambda x: squares(x[:, :-1])),
}


def norms(
    reference: Kernel, dtype: torch.dtype, names: tuple[str, ...], seeds: range
) -> Iterator[tuple[OutputTruth, tuple[torch.Tensor, ...]]]:
    for family in names:
        for seed in seeds:
            x = drawn(family, dtype, seed)
            inputs = (x, *parameters(family, x.shape[1], seed))
            yield judge(reference, *inputs), inputs


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("reference", REFERENCES)
def test_forms_of_layer_norm(reference: str, dtype: torch.dtype) -> None:
    for truth, inputs in norms(REFERENCES[reference], dtype, (*FAR, *PLAIN), range(8 if reference == "squares" else 3)):
        for name, kernel in HONEST.items():
            found = compare(kernel(*inputs), truth)
            assert found.ok, f"{name}: {found.text}"


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("reference", REFERENCES)
def test_wrong_layer_norms_beside_them(reference: str, dtype: torch.dtype) -> None:
    cases = list(norms(REFERENCES[reference], dtype, PLAIN, range(1)))
    passing = {name for name, kernel in WRONG.items() if all(compare(kernel(*x), truth).ok for truth, x in cases)}
    assert not passing


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
def test_rows_far_from_zero_still_tell(dtype: torch.dtype) -> None:
    """What a variance loses in one pass is no licence: a bias left out or a mean in 16 bits shows in any such row."""
    for truth, (x, w, b) in norms(norm(), dtype, ("offset", "close"), range(4)):
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        short = (wide - mean.bfloat16()) * torch.rsqrt(squares(wide) + 1e-5) * w + b
        assert not compare(short.to(dtype), truth).ok
        assert not compare(norm()(x, w, 0 * b), truth).ok


VARIANCES: dict[str, Kernel] = {
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "by hand": lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / (x.shape[-1] - 1),
}


@pytest.mark.parametrize("family", ["peaks", "normal", "tiny", "offset", "outliers"])
@pytest.mark.parametrize("columns", [64, 1024])
@pytest.mark.parametrize("name", VARIANCES)
def test_a_variance_may_be_shifted_by_the_first_element(name: str, columns: int, family: str) -> None:
    """Where that is far from all others, as in rows of `peaks`, it costs as much as a mean far from zero does."""
    for seed in range(4):
        x = drawn(family, FP32, seed, (6, columns))
        if family == "peaks":
            x[0], x[0, 0] = x[0, 1:].mean(), 32.0  # the first against all others
        truth = judge(VARIANCES[name], x)
        root = torch.sqrt if name == "std" else torch.clone
        variance = shifted(x).squeeze(-1)
        assert compare(root(variance * columns / (columns - 1)), truth).ok
        if family != "offset":  # where a mean far from zero hides as much
            assert not compare(root(variance), truth).ok
            assert not compare(root(variance * 1.002 * columns / (columns - 1)), truth).ok


@pytest.mark.parametrize("affine", [True, False])
def test_forms_of_group_norm(affine: bool) -> None:  # noqa: FBT001
    for family in FAR:
        x = drawn(family, FP32, 3, (2, 16, 64))
        w, b = parameters(family, 16, 3) if affine else (torch.ones(16), torch.zeros(16))
        given = (w, b) if affine else (None, None)
        truth = judge(lambda x: F.group_norm(x, 4, *given, 1e-5), x)  # noqa: B023
        groups = x.reshape(8, -1)
        for kernel in HONEST.values():
            plain = kernel(groups, torch.ones(256), torch.zeros(256)).reshape(x.shape)
            assert compare(plain * w[:, None] + b[:, None], truth).ok
        wrong = norm(unbiased)(groups, torch.ones(256), torch.zeros(256)).reshape(x.shape)
        assert family != "offset" or not compare(wrong * w[:, None] + b[:, None], truth).ok


# --- exponentials


def by_hand(x: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


def softmax_to_base_2(x: torch.Tensor, held: torch.dtype = FP32) -> torch.Tensor:
    scaled = x.float() * LOG2E
    weights = torch.exp2(scaled - x.float().amax(-1, keepdim=True) * LOG2E).to(held).float()
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


def log_softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    apart = x.float() - x.float().amax(-1, keepdim=True)
    return (apart - apart.exp().sum(-1, keepdim=True).log()).to(x.dtype)


def log_softmax_by_sum(x: torch.Tensor) -> torch.Tensor:
    top = x.float().amax(-1, keepdim=True)
    return (x.float() - (top + (x.float() - top).exp().sum(-1, keepdim=True).log())).to(x.dtype)


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("family", ["offset", "large", "negative", "normal"])
def test_exponents_may_be_scaled_before_they_are_subtracted(family: str, dtype: torch.dtype) -> None:
    for seed in range(6):
        x = drawn(family, dtype, seed)
        truth = judge(by_hand, x)
        assert compare(softmax_to_base_2(x), truth).ok
        assert family != "normal" or not compare(softmax_to_base_2(x, BF16), truth).ok
        assert compare(log_softmax_by_sum(x), judge(log_softmax_by_hand, x)).ok


# --- what has no such slack


@pytest.mark.parametrize(
    "reference", [lambda x: x - 3, lambda x: x - x.amax(-1, keepdim=True), lambda x: (x + 1).abs()]
)
def test_a_difference_that_nothing_multiplies_stays_exact(reference: Callable[[torch.Tensor], Any]) -> None:
    truth = judge(reference, drawn("small_ints", FP32, 1))
    assert truth.exact


def test_a_residual_is_no_shared_term() -> None:
    """Both terms differ from element to element: no kernel multiplies them apart."""

    def reference(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return (x + residual) * 0.3

    x = drawn("offset", FP32, 1)
    truth = judge(reference, x, 0.01 - x)
    assert float(truth.allowance.max()) < 1e-6  # type: ignore[union-attr]


def test_the_mean_beside_a_variance_gains_nothing() -> None:
    x = 400 + drawn("normal", FP32, 1)
    spec = {"variance": OutputSpec("float32", (3,)), "mean": OutputSpec("float32", (3,))}
    truth = evaluate(lambda x: torch.var_mean(x, -1), {"x": x}, spec).outputs
    assert float(truth["mean"].allowance.max()) < 400 * 2.0**-16  # type: ignore[union-attr]
    assert float(truth["variance"].allowance.min()) > 400**2 * 2.0**-22  # type: ignore[union-attr]


def test_squared_distances_may_be_multiplied_out() -> None:
    """Between rows of two matrices: |a|^2 - 2 a b + |b|^2."""

    def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a[:, None] - b[None]).square().sum(-1)

    a, b = 20 + drawn("normal", FP32, 1, (16, 16)), 20 + drawn("normal", FP32, 2, (16, 16))
    truth = judge(reference, a, b)
    product = a.square().sum(-1)[:, None] - 2 * a @ b.T + b.square().sum(-1)
    assert compare(product, truth).ok
    assert not compare(product.bfloat16().float(), truth).ok


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("shape", [(0, 64), (1, 1), (2, 1)])
def test_degenerate_rows(shape: tuple[int, int]) -> None:
    x, w, b = torch.ones(shape), torch.ones(shape[1]), torch.zeros(shape[1])
    for reference in REFERENCES.values():
        truth = judge(reference, x, w, b)
        assert truth.how == "lifted"
        assert not truth.notes
        assert compare(norm()(x, w, b), truth).ok


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_terms_of_a_masked_sum_stay_finite_whatever_they_are_multiplied_by(dtype: torch.dtype) -> None:
    """A card multiplies them by a number of the dice, up to the root of three, before it makes them small."""
    logits, lse = torch.tensor([[1.0, -torch.inf, 2.0]], dtype=dtype), torch.tensor([[2.3]], dtype=dtype)
    terms = [tag(each.clone(), dtype, origin=False, clean=False) for each in (logits, lse)]
    sizes = distribute.reach(terms, logits - lse)
    assert sizes is not None
    assert bool((sizes * 3**0.5).isfinite().all())
