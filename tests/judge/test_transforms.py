"""Fourier transforms have the truth of torch in float64, and bounds that hold fast ones and matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import fft

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

REAL = torch.view_as_real

TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rfft": lambda x: REAL(fft.rfft(x)),
    "scaled": lambda x: REAL(fft.rfft(x, norm="ortho")),
    "real plane": lambda x: REAL(fft.rfft2(x)),
    "complex": lambda x: REAL(fft.fft(x)),
    "back": lambda x: REAL(fft.ifft(fft.fft(x, dim=1) * 2j, dim=1)),
    "plane": lambda x: REAL(fft.ifft2(fft.fft2(x).square())),
    "to real": lambda x: fft.irfft(fft.rfft(x), n=x.shape[-1]),
    "cut": lambda x: fft.irfft(fft.rfft(x), n=7),
    "padded": lambda x: fft.irfft(fft.rfft(x), n=14),
    "one": lambda x: fft.irfft(fft.rfft(x), n=1),
    "two": lambda x: fft.irfft(fft.rfft(x), n=2),
    "to a real plane": lambda x: fft.irfftn(fft.rfftn(x) * 2, s=x.shape),
    "hermitian": lambda x: fft.hfft(fft.ihfft(x), n=x.shape[-1]),
    "convolution": lambda x: fft.irfft(fft.rfft(x, n=20) * fft.rfft(x[:1], n=20), n=20)[..., :10],
}


def truth(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Truth:
    return evaluate(function, {"x": x}, {"y": OutputSpec("float32", tuple(function(x).shape))})


@pytest.mark.parametrize("shape", [(4, 6, 10), (4, 9, 9), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_what_torch_finds_in_float64(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(7))
    found = truth(TRANSFORMS[name], x).outputs["y"]
    expected = TRANSFORMS[name](x.double())
    assert found.how == "lifted"
    assert found.wide is not None
    assert torch.allclose(found.wide, expected, rtol=1e-12, atol=1e-13)
    assert compare(TRANSFORMS[name](x), found).ok


@pytest.mark.parametrize("size", [128, 1000])
def test_fast_ones_and_products_are_right_and_16_bits_are_not(size: int) -> None:
    x = torch.randn(16, size, generator=torch.Generator().manual_seed(7))
    found = truth(TRANSFORMS["rfft"], x).outputs["y"]
    waves = fft.rfft(torch.eye(size, dtype=torch.float64)).to(torch.complex64)
    assert compare(TRANSFORMS["complex"](x)[:, : size // 2 + 1], found).ok
    assert compare(torch.stack([x @ waves.real, x @ waves.imag], dim=-1), found).ok
    assert not compare(TRANSFORMS["rfft"](x.half().float()), found).ok
    assert not compare(REAL(fft.rfft(x).conj().resolve_conj()), found).ok
