"""Matrix products written as a multiplication and a sum: operands may be held in 16 bits as in any other."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec

from . import cases, kernels

if TYPE_CHECKING:
    from collections.abc import Callable

BF16, FP16 = torch.bfloat16, torch.float16


def by_sum(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (p.mT.unsqueeze(-1) * v).sum(1)


def by_view(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (v * p.mT.unsqueeze(-1).expand_as(v)).sum(dim=-3, keepdim=True)[:, 0]


def in_place(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(v.shape[0], *v.shape[2:], dtype=torch.float32)
    for key in range(v.shape[1]):
        out += p[:, :, key, None] * v[:, key]
    return out


def row_by_row(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(v.shape[0], *v.shape[2:])
    for row in range(v.shape[0]):
        for key in range(v.shape[1]):
            out[row] += p[row, :, key, None] * v[row, key]
    return out


def one_by_one(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(v.shape[0], *v.shape[2:])
    for key in range(v.shape[1]):
        out = p[:, :, key, None] * v[:, key] + out
    return out


def by_python(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return sum(p[:, :, key, None] * v[:, key] for key in range(v.shape[1]))  # type: ignore[return-value]


FORMS = (by_sum, by_view, in_place, row_by_row, one_by_one, by_python)


def attention(form: Callable[..., torch.Tensor]) -> kernels.Kernel:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        logits = (q.float().unsqueeze(1) * k.float()).sum(-1).mT * scale
        return form(torch.softmax(logits, -1), v.float()).to(q.dtype), torch.logsumexp(logits, -1) / math.log(2.0)

    return run


@functools.cache
def cases_of(form: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[cases.Case]:
    return [
        cases.Case(given, specs, evaluate(attention(form), given, specs))
        for given, specs in cases.inputs("attention", dtype)
    ]


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("form", FORMS)
def test_attention_is_the_same_however_it_is_written(form: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    for name, kernel in kernels.HONEST["attention"].items():
        for case in cases_of(form, dtype):
            assert all(found.ok for found in case.judge(kernel)), name
    for name, kernel in kernels.WRONG["attention"].items():
        if ("attention", name, dtype) not in kernels.INDISTINCT:
            assert not all(found.ok for case in cases_of(form, dtype) for found in case.judge(kernel)), name


@pytest.mark.parametrize("length", [1, 5])
def test_weights_that_leave_some_to_a_sink(length: int) -> None:
    def run(w: torch.Tensor, v: torch.Tensor, held: torch.dtype = torch.float32) -> torch.Tensor:
        return (torch.sigmoid(w).to(held).float()[:, None] * v.float()).sum(0).to(v.dtype)

    given = {"w": torch.linspace(-1.0, 0.7, length), "v": torch.randn(length, 64).bfloat16()}
    case = made(run, given, "bfloat16", (64,))
    assert case.judge(functools.partial(run, held=BF16))[0].ok
    assert not case.judge(functools.partial(run, held=torch.float8_e4m3fn))[0].ok


def made(run: kernels.Kernel, given: dict[str, Any], dtype: str, shape: tuple[int, ...]) -> cases.Case:
    specs = {"y": OutputSpec(dtype, shape)}
    return cases.Case(given, specs, evaluate(run, given, specs))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_state_is_read_by_products(dtype: str) -> None:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, held: torch.dtype = torch.float32) -> torch.Tensor:
        state = torch.zeros(2, 32, 16)
        out = []
        for t in range(q.shape[0]):
            state = 0.9 * state + k[t].float()[:, :, None] * v[t].float()[:, None, :]
            out.append((state.to(held).float() * q[t].float()[:, :, None]).sum(1))
        return torch.stack(out).to(getattr(torch, dtype))

    given = {name: torch.randn(12, 2, size).bfloat16() for name, size in (("q", 32), ("k", 32), ("v", 16))}
    case = made(run, given, dtype, (12, 2, 16))
    assert case.judge(functools.partial(run, held=BF16))[0].ok
    assert not case.judge(functools.partial(run, held=torch.float8_e4m3fn))[0].ok


def halved(x: torch.Tensor, held: torch.dtype) -> torch.Tensor:
    return x.to(held).float()


def norm(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32) -> torch.Tensor:
    rows = x.float()
    scale = halved(torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-6), held)
    return rows * scale * w.float()


def norm_onto_zeros(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32
) -> torch.Tensor:
    out = torch.zeros(x.shape)
    for row in range(x.shape[0]):
        scale = halved(torch.rsqrt(x[row].float().square().mean(-1, keepdim=True) + 1e-6), held)
        out[row] += x[row].float() * scale
    return out


def weighted_and_shifted(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32
) -> torch.Tensor:
    rows = halved((x.float() - 0.1) / 3, held)
    return rows * w.float() + w.float()


def rotated(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32) -> torch.Tensor:
    angles = w.float() * 3
    cos, sin = halved(angles.cos(), held), halved(angles.sin(), held)
    return x.float() * cos + x.float().flip(-1) * sin


def in_scaled_blocks(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32
) -> torch.Tensor:
    total = torch.zeros(8, 8)
    for block, part in enumerate(x.float().split(32, -1)):
        total += halved(part @ part.T, held) * s[:, block, None]
    return torch.nn.functional.pad(total, (0, 120))


def sum_of_scaled_blocks(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32
) -> torch.Tensor:
    parts = torch.stack([halved(part @ part.T, held) for part in x.float().split(32, -1)])
    return torch.nn.functional.pad((parts * s.T[:, :, None]).sum(0), (0, 120))


def with_scales_of_blocks(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32
) -> torch.Tensor:
    total = torch.zeros(8, 8)
    for block, part in enumerate(x.float().split(32, -1)):
        total += part @ part.T * halved(s[:, block] / 3, held)[:, None]
    return torch.nn.functional.pad(total, (0, 120))


def sum_of_squares(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32
) -> torch.Tensor:
    rows = halved(x.float() / 3, held)
    return (rows * rows).sum(-1, keepdim=True).expand(8, 128)


def state(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, held: torch.dtype = torch.float32) -> torch.Tensor:
    total = torch.zeros(8, 128)
    for row in x.float():
        total = total + row[:8, None] * halved(w.float() * row / 3, held)
    return total


@pytest.mark.parametrize(
    "run",
    [
        norm, norm_onto_zeros, weighted_and_shifted, rotated, in_scaled_blocks, sum_of_scaled_blocks,
        with_scales_of_blocks, sum_of_squares, state,
    ],
)  # fmt: skip
def test_what_is_no_matrix_product_gets_no_room(run: kernels.Kernel) -> None:
    g = torch.Generator().manual_seed(2)
    given = {
        "x": torch.randn(8, 128, generator=g).bfloat16(),
        "w": torch.randn(128, generator=g).bfloat16(),
        "s": torch.rand(8, 4, generator=g) + 0.5,
    }
    case = made(run, given, "float32", (8, 128))
    assert case.judge(run)[0].ok
    assert not case.judge(functools.partial(run, held=BF16))[0].ok


def test_exponentials_that_a_mask_multiplies_are_added_up_in_float32() -> None:
    def run(x: torch.Tensor, held: torch.dtype = torch.float32) -> torch.Tensor:
        mask = torch.ones(32, 32).tril()
        return (torch.exp(x.float()).unsqueeze(1).to(held).float() * mask).sum(-1)

    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(2))
    case = made(run, {"x": x.bfloat16()}, "float32", (4, 32))
    assert not case.judge(functools.partial(run, held=BF16))[0].ok
