"""Complex numbers in a reference have the bounds of the real formulas that they stand for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = torch.polar(torch.ones(8, 16), torch.arange(128.0).reshape(8, 16) / 7)


def as_complex(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def as_real(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z).flatten(-2)


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.float()[..., ::2], x.float()[..., 1::2]


def together(real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    return torch.stack([real, imaginary], dim=-1).flatten(-2)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = halves(x)
    return together(a * cos - b * sin, a * sin + b * cos)


def by_table(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return rotated(x, TABLE.real, TABLE.imag)


def multiplied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return rotated(x, *halves(y))


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return as_real(as_complex(x).clone().mul_(as_complex(y)))


def divided(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (a, b), (c, d) = halves(x), halves(y)
    size = c * c + d * d
    return together((a * c + b * d) / size, (b * c - a * d) / size)


def matrix(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (a, b), (c, d) = halves(x), halves(y)
    return together(a @ c.T - b @ d.T, a @ d.T + b @ c.T)


def angles(y: torch.Tensor) -> torch.Tensor:
    return y.float()[..., ::2] * 3


# the reference, and what it stands for; both of x and y [8, 32]
PAIRS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "rotary": (
        lambda x, y: as_real(as_complex(x) * torch.polar(torch.ones_like(angles(y)), angles(y))),
        lambda x, y: rotated(x, angles(y).cos(), angles(y).sin()),
    ),
    "rotary by exp": (
        lambda x, y: as_real(as_complex(x) * torch.exp(1j * angles(y))),
        lambda x, y: rotated(x, angles(y).cos(), angles(y).sin()),
    ),
    "rotary by parts": (
        lambda x, y: as_real(as_complex(x) * torch.complex(angles(y).cos(), angles(y).sin())),
        lambda x, y: rotated(x, angles(y).cos(), angles(y).sin()),
    ),
    "rotary by a table": (lambda x, y: as_real(as_complex(x) * TABLE), by_table),
    "product": (lambda x, y: as_real(as_complex(x) * as_complex(y)), multiplied),
    "product in place": (in_place, multiplied),
    "conjugate": (
        lambda x, y: as_real(as_complex(x) * as_complex(y).conj()),
        lambda x, y: rotated(x, halves(y)[0], -halves(y)[1]),
    ),
    "quotient": (lambda x, y: as_real(as_complex(x) / as_complex(y)), divided),
    "times a real": (
        lambda x, y: as_real(as_complex(x) * y[..., ::2].float()),
        lambda x, y: together(*(each * y[..., ::2].float() for each in halves(x))),
    ),
    "times i, plus i": (
        lambda x, y: as_real(as_complex(x) * 1j + as_complex(y) + 1j - 2.0),
        lambda x, y: together(halves(y)[0] - halves(x)[1] - 2.0, halves(y)[1] + halves(x)[0] + 1),
    ),
    "matrices": (
        lambda x, y: as_real(as_complex(x) @ as_complex(y).T).repeat(1, 2),
        lambda x, y: matrix(x, y).repeat(1, 2),
    ),
    "sizes and angles": (
        lambda x, y: together(as_complex(x).abs(), as_complex(y).angle()),
        lambda x, y: together(torch.hypot(*halves(x)), torch.atan2(*halves(y)[::-1])),
    ),
    "squares": (
        lambda x, y: as_real(as_complex(x) ** 2 - as_complex(y)),
        lambda x, y: rotated(x, *halves(x)) - y.float(),
    ),
    "sums": (
        lambda x, y: as_real(as_complex(x).cumsum(-1) * as_complex(y)),
        lambda x, y: rotated(together(*(each.cumsum(-1) for each in halves(x))), *halves(y)),
    ),
    "cast": (
        lambda x, y: as_real(as_complex(x) * angles(y).to(torch.complex64)),
        lambda x, y: together(*(each * angles(y) for each in halves(x))),
    ),
}


def judge(run: Callable[..., Any], dtype: torch.dtype, inputs: dict[str, torch.Tensor]) -> OutputTruth:
    truth = evaluate(lambda x, y: run(x, y).to(dtype), inputs, {"z": OutputSpec(name_of(dtype), (8, 32))})
    assert truth.how == "lifted"
    return truth.outputs["z"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PAIRS)
def test_complex_numbers_have_the_bound_of_their_parts(name: str, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(1)
    inputs = {each: torch.randn(8, 32, generator=g).to(dtype) for each in "xy"}
    by_complex, by_reals = PAIRS[name]
    one, other = judge(by_complex, dtype, inputs), judge(by_reals, dtype, inputs)
    torch.testing.assert_close(one.wide, other.wide, rtol=1e-12, atol=1e-12)
    assert one.widened == 1.0
    assert one.allowance is not None
    ratio = one.allowance / other.allowance
    assert 0.8 < float(ratio.median()) < 1.25
    assert compare(by_reals(*inputs.values()).to(dtype), one).ok
    assert not compare(by_reals(inputs["x"] * (1 + 2.0**-6), inputs["y"]).to(dtype), one).ok


def test_a_product_of_complex_numbers_may_be_fused() -> None:
    """One product is not rounded then: where the difference cancels, much is left of the other's rounding."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(8, 32, generator=g), torch.randn(8, 32, generator=g)
    truth = judge(PAIRS["product"][0], torch.float32, {"x": x, "y": y})
    (a, b), (c, d) = halves(x), halves(y)
    real = (a.double() * c.double() - (b * d).double()).float()
    imaginary = (a.double() * d.double() + (b * c).double()).float()
    assert compare(together(real, imaginary), truth).ok


def test_what_has_no_rule_is_judged_by_the_table() -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
    spec = {"y": OutputSpec("float32", (8, 32))}
    truth = evaluate(lambda x: torch.fft.irfft(torch.fft.rfft(x, n=8192), n=8192)[:, :32], {"x": x}, spec)
    assert truth.how.startswith("native: ")
    assert "complex numbers" in truth.how
    assert compare(x, truth.outputs["y"]).ok
    powers = evaluate(lambda x: as_real(as_complex(x) ** 3), {"x": x}, spec)
    assert powers.how.startswith("native: ")
    assert not math.isnan(float(powers.outputs["y"].native.sum()))  # type: ignore[union-attr]
