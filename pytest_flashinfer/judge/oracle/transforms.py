"""Fourier transforms as the matrix products that they stand for.

A fast one errs less than sums of products do, but kernels find short ones as matrix products, too.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.complex_numbers import parts, whole_of
from pytest_flashinfer.judge.oracle.lifted import tag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Pair = tuple[Any, Any]

_LONGEST = 2048  # elements of an axis: the products grow with its square
_NAMES = ("_fft_r2c", "_fft_c2r", "_fft_c2c")


def is_transform(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Say whether an operation is a Fourier transform that is short enough for products."""
    return name in _NAMES and not kwargs and all(size <= _LONGEST for size in _sizes(name, args))


def transform(name: str, args: Sequence[Any], wide: torch.dtype) -> Callable[[], Any]:
    """Return what runs a transform one axis after the other; its waves are made here, and are exact."""
    x, axes, norm, how = args
    sizes = _sizes(name, args)
    back = name == "_fft_c2r" or (name == "_fft_c2c" and not how)
    waves = [_waves(x, size, size, size, back=back) for size in sizes]
    if name == "_fft_c2r":
        waves[-1] = _folded(x, sizes[-1], int(x.shape[axes[-1]]))
    elif name == "_fft_r2c" and how:
        waves[-1] = _waves(x, sizes[-1], sizes[-1], sizes[-1] // 2 + 1, back=False)
    exact = partial(tag, declared=torch.float32, origin=True, clean=True)
    steps = [(axis, exact(cos.to(wide)), exact(sin.to(wide))) for axis, (cos, sin) in zip(axes, waves, strict=True)]
    factor = math.prod(sizes) ** (0.0, -0.5, -1.0)[norm]
    return partial(_run, x, steps if name == "_fft_c2r" else steps[::-1], factor, to_real=name == "_fft_c2r")


def _run(x: torch.Tensor, steps: Sequence[tuple[int, Any, Any]], factor: float, *, to_real: bool) -> Any:
    real, imaginary = parts(x)
    for place, (axis, cos, sin) in enumerate(steps):
        a, b = (None if part is None else part.movedim(axis, -1) for part in (real, imaginary))
        real = a @ cos if b is None else a @ cos - b @ sin
        real = real.movedim(-1, axis)
        if to_real and place == len(steps) - 1:
            return real if factor == 1 else real * factor
        imaginary = a @ sin if b is None else a @ sin + b @ cos
        imaginary = imaginary.movedim(-1, axis)
    return whole_of((real, imaginary) if factor == 1 else (real * factor, imaginary * factor))


def _sizes(name: str, args: Sequence[Any]) -> list[int]:
    """Return how many elements each transformed axis has, the last one in the end where the result is real."""
    sizes = [int(args[0].shape[axis]) for axis in args[1]]
    return [*sizes[:-1], int(args[3])] if name == "_fft_c2r" else sizes


def _waves(like: torch.Tensor, size: int, rows: int, columns: int, *, back: bool) -> Pair:
    """Return the cosines and sines of all products of a place and a frequency, [rows, columns]."""
    places = torch.arange(rows, device=like.device)[:, None] * torch.arange(columns, device=like.device) % size
    angle = places.to(torch.float64) * (2 * math.pi / size)
    return torch.cos(angle), torch.sin(angle) * (1.0 if back else -1.0)


def _folded(like: torch.Tensor, size: int, given: int) -> Pair:
    """Return the waves of half a spectrum whose result is real: all but its ends stand for the other half, too."""
    cos, sin = _waves(like, size, given, size, back=True)
    times = torch.full((given, 1), 2.0, dtype=torch.float64, device=like.device)
    times[0] = 1.0
    if size % 2 == 0 and given > 1:
        times[-1] = 1.0
    return cos * times, sin * times
