"""From noise to a bound: how large an error an honest kernel may have, per element."""

from __future__ import annotations

import torch

from .floats import FLUSH, canonical, roundoff, spacing

SIGMAS = 6.0  # honest errors are sums of many roundings: one in 10^9 exceeds this
FLOAT32_UNIT = 16 / SIGMAS * 2.0**-24  # noise of one float32 operation: 16 roundings at the bound
FLOAT64_UNIT = 16 / SIGMAS * 2.0**-53
_HALF_ULP = 0.5 * (1 + 2.0**-5)  # one rounding to nearest, and a little for approximated functions
_COARSE = 2.0**-16  # relative noise above this comes from 16-bit roundings inside


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor as [rows, columns]; vectors and single columns are one row."""
    if tensor.ndim < 2 or tensor.shape[-1] == 1:  # noqa: PLR2004
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def smooth(squares: torch.Tensor, runs: int, weight: float) -> torch.Tensor:
    """Steady a variance estimated from few runs: mix in `weight` runs' worth of the neighbourhood's mean.

    The neighbourhood is the row; where there are many rows, row times column, so that one loud channel does not lend
    its noise to the quiet ones.
    """
    table = rows(squares)
    if not table.numel():
        return squares
    pooled = table.mean(dim=1, keepdim=True)
    if table.shape[0] >= 8:  # noqa: PLR2004 - below, a column holds too few samples
        pooled = pooled * (table.mean(dim=0, keepdim=True) / table.mean().clamp_min(1e-300))
    return ((table * runs + pooled * weight) / (runs + weight)).reshape(squares.shape)


def relative(squares: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the variance that each element would have if all of a row had the row's usual relative error.

    Few runs find, for one element in a thousand, no error at all by chance; its neighbours know better.
    """
    size = rows(values.square())
    if not size.numel():
        return squares
    ratio = rows(squares) / size.clamp_min(1e-300)
    return (size * ratio.median(dim=1, keepdim=True).values).reshape(squares.shape)


def allowance(wide: torch.Tensor, squares: torch.Tensor, runs: int, dtype: str) -> torch.Tensor:
    """Return the tolerated absolute error (float64, shape of `wide`) from the mean square of the noise over `runs`."""
    size = torch.nan_to_num(wide, nan=0.0, posinf=0.0, neginf=0.0)
    coarse = rows(squares).mean() > (_COARSE**2) * rows(size.square()).mean() if size.numel() else torch.tensor(False)  # noqa: FBT003
    if bool(coarse):
        noise = torch.maximum(smooth(squares, runs, 8.0), squares).sqrt()
    else:
        least = torch.where(squares > 0, (size * FLOAT32_UNIT).square(), 0.0) if dtype != "float64" else squares
        noise = torch.maximum(torch.maximum(smooth(squares, runs, 0.5), relative(squares, size)), least).sqrt()
    return _HALF_ULP * spacing(size, dtype) + FLUSH + SIGMAS * noise


def table(native: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound where only the plain reference exists: by dtype, relative to the element and to its row."""
    size = torch.nan_to_num(native.to(torch.float64), nan=0.0, posinf=0.0, neginf=0.0)
    row = rows(size).square().mean(dim=1, keepdim=True).sqrt().expand(rows(size).shape).reshape(size.shape)
    if canonical(dtype) in ("float32", "float64"):
        unit = 16 * roundoff(dtype)
        return unit * (size.abs() + 8 * row) + FLUSH
    return 1.0 * spacing(size, dtype) + roundoff(dtype) * row + FLUSH
