"""From noise to a bound: how large an error an honest kernel may have, per element."""

from __future__ import annotations

import torch

from pytest_flashinfer.judge.floats import FLUSH, canonical, roundoff, spacing

SIGMAS = 6.0  # honest errors are sums of many roundings: one in 10^9 exceeds this
FLOAT32_UNIT = 16 / SIGMAS * 2.0**-24  # noise of one float32 operation: 16 roundings at the bound
FLOAT64_UNIT = 16 / SIGMAS * 2.0**-53
_TINY = 1e-300
_HOPELESS = 1e60  # the square of a relative error
_HALF_ULP = 0.5 * (1 + 2.0**-5)  # one rounding to nearest, and a little for approximated functions
_HELD_INSIDE = 3.0  # roundings of operands held in 16 bits, where few terms make a row and one element has the largest
_ENOUGH = 6.5  # runs, and neighbours' runs in their place, below which chance makes too much of an element's bound
# Times an element's own deviation, the usual one of its row, and the largest, where few elements of a row move at all.
_AS_FAR, _IN_A_ROW, _AS_MOST = 2.0, 3.0, 1.25
# Of the usual squared error one element in ten has at most, where two runs or more, and one, draw the same for all.
_OF_ALL, _OF_ALL_IN_ONE = 0.1, 0.015
_TENTH = 0.1
_COARSE = 2.0**-16  # relative noise above this comes from 16-bit roundings inside


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor as [rows, columns]; vectors, single columns and what has none are one row."""
    if tensor.ndim < 2 or tensor.shape[-1] <= 1:  # noqa: PLR2004
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def smooth(squares: torch.Tensor, runs: int, weight: torch.Tensor) -> torch.Tensor:
    """Steady variances [rows, columns] estimated from few runs: mix in `weight` runs' worth of the neighbours' mean.

    `weight` is [rows, 1]. The neighbourhood is the row; where there are many rows, row times column, each row counting
    the same, so that one large channel does not give its noise to the small ones.
    """
    pooled = squares.mean(dim=1, keepdim=True)
    column = torch.ones_like(squares[:1])
    if squares.shape[0] >= 8:  # noqa: PLR2004 - below, a column holds too few samples
        column = (squares / pooled.clamp_min(_TINY)).mean(dim=0, keepdim=True)
        column /= column.mean().clamp_min(_TINY)
    own = runs / (runs + weight)
    return (squares * own).addcmul_(pooled * (1 - own), column)


def least(squares: torch.Tensor, sizes: torch.Tensor, coarse: torch.Tensor, runs: int) -> torch.Tensor:
    """Return the variance [rows, columns] that float32 arithmetic has at the least, `sizes` being the squared values.

    Few runs find, for one element in a thousand, no error at all by chance; its neighbours know better: their usual
    relative error is meant to be its own. What no run changes is exact. In `coarse` rows [rows, 1] it counts as far as
    float32 may explain it, for large elements need not have the relative error of small ones where 16 bits make it;
    and a tenth of it always where it is that of all. Where most elements are exact, as the zeros of a steep softmax,
    chance does not find all of the few others hardly off: each may be off by as much as they are together.
    """
    relative = squares / sizes.clamp_min(_TINY)
    usual = relative.median(dim=1, keepdim=True).values
    together = squares.sum(dim=1, keepdim=True) / sizes.sum(dim=1, keepdim=True).clamp_min(_TINY)
    together = torch.where(usual > 0, 0.0, together)
    if bool(coarse.any()):
        low = relative.kthvalue(1 + relative.shape[1] // 10, dim=1, keepdim=True).values
        shared = torch.where(low >= (_OF_ALL if runs > 1 else _OF_ALL_IN_ONE) * usual, _TENTH**2 * usual, 0.0)
        usual = torch.where(coarse, torch.maximum(usual.clamp(max=_COARSE**2), shared), usual)
    usual = torch.maximum(usual, together).clamp_(FLOAT32_UNIT**2, _HOPELESS)
    return torch.where(squares > 0, sizes * usual, 0.0)


def allowance(wide: torch.Tensor, squares: torch.Tensor, runs: int, dtype: str) -> torch.Tensor:
    """Return the tolerated absolute error (float64, shape of `wide`) from the mean square of the noise over `runs`."""
    size = torch.nan_to_num(wide, nan=0.0, posinf=0.0, neginf=0.0)
    limit = spacing(size, dtype).mul_(_HALF_ULP).add_(FLUSH)
    if not size.numel():
        return limit
    noise, sizes = rows(squares), rows(size.square())
    coarse = noise.mean(dim=1, keepdim=True) > _COARSE**2 * sizes.mean(dim=1, keepdim=True)
    found = smooth(noise, runs, torch.where(coarse, 8.0, max(0.5, _ENOUGH - runs)))
    floor = noise if canonical(dtype) == "float64" else torch.maximum(noise * coarse, least(noise, sizes, coarse, runs))
    return limit.add_(torch.maximum(found, floor, out=found).sqrt_().reshape(size.shape), alpha=SIGMAS)


def among_others(squares: torch.Tensor) -> torch.Tensor:
    """Return the tolerated error where values go with ids that rounding decides: some times as far as runs went.

    An honest kernel may have chosen an id that no run did: its values may be as far off anywhere in the row.
    """
    usual, most = rows(squares).mean(dim=1, keepdim=True).sqrt(), rows(squares).amax(dim=1, keepdim=True).sqrt()
    row = torch.maximum(_IN_A_ROW * usual, _AS_MOST * most).expand(rows(squares).shape).reshape(squares.shape)
    return torch.maximum(_AS_FAR * squares.sqrt(), row)


def table(native: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound where only the plain reference exists: by dtype, relative to the element and to its row."""
    size = torch.nan_to_num(native.to(torch.float64), nan=0.0, posinf=0.0, neginf=0.0)
    row = rows(size).square().mean(dim=1, keepdim=True).sqrt().expand(rows(size).shape).reshape(size.shape)
    if canonical(dtype) in ("float32", "float64"):
        unit = 16 * roundoff(dtype)
        return unit * (size.abs() + 8 * row) + FLUSH
    return 1.0 * spacing(size, dtype) + _HELD_INSIDE * roundoff(dtype) * row + FLUSH
