"""Products of 8-bit floats: tensor cores add them up in fewer bits than float32 has; nothing else may be as coarse."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth

E4M3 = torch.float8_e4m3fn
ROWS, COLUMNS = 24, 40


def product(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    return ((a.float() @ b.float().T) * scale).to(torch.bfloat16)


def operands(length: int, *, same_sign: bool = False, step: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    drawn = [step * torch.randn(rows, length, generator=generator) for rows in (ROWS, COLUMNS)]
    return tuple((x.abs() if same_sign else x).to(E4M3) for x in drawn)  # type: ignore[return-value]


def truth(a: torch.Tensor, b: torch.Tensor) -> Truth:
    return evaluate(product, {"a": a, "b": b, "scale": 0.5}, {"c": OutputSpec("bfloat16", (ROWS, COLUMNS))})


def added(a: torch.Tensor, b: torch.Tensor, *, every: int) -> torch.Tensor:
    """The product as tensor cores find it: sums of 8 products are cut to 14 bits, and float32 has those of `every`."""
    wide, total = (a.double(), b.double()), torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    for begin in range(0, a.shape[1], every):
        part = torch.zeros_like(total)
        for at in range(begin, min(begin + every, a.shape[1]), 32):
            terms = wide[0][:, None, at : at + 32] * wide[1][None, :, at : at + 32]
            sums = terms.unflatten(-1, (4, -1)).sum(dim=-1)
            largest = torch.maximum(sums.abs().amax(dim=-1), part.abs()).clamp_min(1e-30)
            unit = torch.exp2(torch.floor(torch.log2(largest)) - 13)
            part = ((sums / unit[..., None]).trunc().sum(dim=-1) + (part / unit).trunc()) * unit
        total += part
    return (total.float() * 0.5).to(torch.bfloat16)


@pytest.mark.parametrize("same_sign", [False, True], ids=["mixed", "same sign"])
@pytest.mark.parametrize("length", [32, 64, 128, 512, 2048])
def test_sums_that_a_tensor_core_hands_on_in_time_pass(length: int, *, same_sign: bool) -> None:
    a, b = operands(length, same_sign=same_sign)
    found = compare(added(a, b, every=128), truth(a, b).outputs["c"])
    assert found.ok, found.lines


def test_a_long_sum_in_so_few_bits_does_not() -> None:
    """Where all signs are equal it loses some percent."""
    a, b = operands(2048, same_sign=True)
    assert not compare(added(a, b, every=2048), truth(a, b).outputs["c"]).ok


@pytest.mark.parametrize("length", [64, 2048])
def test_a_term_that_is_left_out_does_not(length: int) -> None:
    a, b = operands(length)
    fewer = a.float()
    fewer[:, -1] = 0
    assert not compare(product(fewer, b, 0.5), truth(a, b).outputs["c"]).ok


def test_small_integers_are_exact() -> None:
    a, b = (x.float().round().clamp(-2, 2).to(E4M3) for x in operands(512))
    known = truth(a, b).outputs["c"]
    assert known.exact
    right = product(a, b, 0.5)
    assert compare(right, known).ok
    wrong = right.clone()
    wrong[3, 5] = torch.nextafter(wrong[3, 5], torch.tensor(1e9, dtype=torch.bfloat16))
    assert not compare(wrong, known).ok


def test_products_of_other_values_are_as_strict_as_before() -> None:
    a, b = (torch.randn(rows, 256, generator=torch.Generator().manual_seed(rows)) for rows in (ROWS, COLUMNS))
    spec = {"c": OutputSpec("float32", (ROWS, COLUMNS))}
    known = evaluate(lambda a, b: a @ b.T, {"a": a, "b": b}, spec).outputs["c"]
    assert compare(a @ b.T, known).ok
    assert not compare((a @ b.T) * (1 + 2.0**-14), known).ok
