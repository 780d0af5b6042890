"""Named families of float values: each brings out a kind of bug that `randn` hides; all fill tensors in place."""

from __future__ import annotations

import math
from typing import Final

import torch

from pytest_flashinfer.inputs.dtypes import FLOAT8, largest
from pytest_flashinfer.inputs.floats import not_finite, patterns
from pytest_flashinfer.inputs.floats.draws import Draw, Fill, normal, scale_rows, some_elements, some_rows, uniform

_CHUNK: Final = 1 << 24  # elements that are made at a time where more memory than their own is needed
_ENTRIES: Final = 5  # powers of two from which on a whole entry of the first axis is alike
_WIDE: Final = 50  # times as large as others are some integers: beyond 8 bits, and all of bfloat16
_STAY: Final = 0.1  # the share of elements of `sparse` that are not 0
_UNEVEN: Final = 9.0  # log2 of how much larger or smaller a tensor is than usual
_RISE: Final = 128.0  # of a row: no exponential of its end less its beginning is finite in float32
_ULP16: Final = {torch.float32: -14, torch.float16: -9, torch.bfloat16: -6, torch.float64: -14}


def _large(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    scale_rows(x, draw, 3, 9)


def _huge(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    scale_rows(x, draw, 13, 20)


def _tiny(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    scale_rows(x, draw, -18, -7)


def _uneven(x: torch.Tensor, draw: Draw) -> None:
    """Make a whole tensor large or tiny: of several that are multiplied some products are, and the last one is not."""
    normal(x, draw)
    large = bool(torch.randint(2, (1,), device=x.device, generator=draw.own))
    x.mul_(2.0 ** (min(_UNEVEN, draw.limit - 4) if large else -_UNEVEN))


def _negative(x: torch.Tensor, draw: Draw) -> None:
    x.normal_(generator=draw.own).abs_().add_(1).neg_()
    scale_rows(x, draw, 0, 8)  # a softmax that subtracts a logarithm of the sum is off by a rounding of these


def _opposed(x: torch.Tensor, draw: Draw) -> None:
    """Make rows below zero, which with queries above it give scores whose exponentials are 0, unless shifted."""
    x.normal_(generator=draw.own).abs_().add_(1).neg_()
    scale_rows(x, draw, 0, 4)


def _rising(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that rise by more than exponentials in float32 span: what was the maximum at first is none later."""
    x.normal_(generator=draw.own).mul_(0.25).add_(torch.linspace(0, _RISE, x.shape[1], device=x.device).to(x.dtype))


def _sunken(x: torch.Tensor, draw: Draw) -> None:
    """Put all values so far below zero that their exponentials are 0 in float32, unless shifted."""
    x.normal_(generator=draw.own).mul_(8).sub_(2.0 ** min(9, draw.limit - 4))


def _positive(x: torch.Tensor, draw: Draw) -> None:
    x.normal_(generator=draw.own).abs_().add_(0.25)
    scale_rows(x, draw, -1, 3)


def _offset(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    offsets = uniform(x, 4, min(9, draw.limit - 4), draw.rows).exp2_().to(x.dtype)
    entries = bool(some_rows(x[:1], 0.5, draw.rows))  # a norm may be one of a whole image
    x.add_(_of_groups(offsets, draw.alike if entries else 1))


def _outliers(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    count = max(1, x.shape[1] // 64)
    channels = torch.randint(x.shape[1], (count,), device=x.device, generator=draw.own)
    x[:, channels] *= 2.0 ** min(6, draw.limit - 4)


def _constant_rows(x: torch.Tensor, draw: Draw) -> None:
    # In small ones an eps shows, in large ones a variance from squares that is below zero; in still larger ones what a
    # norm loses that is one multiply-add an element.
    small, large = uniform(x, -12, 2, draw.rows).exp2_(), uniform(x, 3, 6, draw.rows).exp2_()
    sizes = torch.where(some_rows(x, 0.2, draw.rows), large, small)
    values = torch.where(some_rows(x, 0.5, draw.rows), -sizes, sizes)
    power = int(torch.randint(-2, 7, (1,), device=x.device, generator=draw.rows))
    x.copy_(_of_groups(values, draw.alike if power >= _ENTRIES else 1 << max(power, 0)))


def _of_groups(values: torch.Tensor, alike: int) -> torch.Tensor:
    """Return values [rows, 1] that are the same for so many neighbours: a norm may be one of several rows."""
    return values[torch.arange(len(values), device=values.device) // alike]


def _zero_rows(x: torch.Tensor, draw: Draw) -> None:
    """Make rows of zeros, in some draws entries of the first axis, as tokens with all their heads, in some all."""
    normal(x, draw)
    every, entries = uniform(x[:1], 0, 1, draw.rows, columns=2)[0].tolist()
    alike = draw.alike if entries < 0.5 else 1  # noqa: PLR2004
    zero = some_rows(x[::alike], 1.0 if every < 0.25 else 0.5, draw.rows)  # noqa: PLR2004
    zero[:1] = True
    x.masked_fill_(zero.repeat_interleave(alike, dim=0)[: len(x)], 0)


def _sparse(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    keep = torch.empty(x.shape, dtype=torch.float16, device=x.device).uniform_(0, 1, generator=draw.own)
    x.masked_fill_(keep > _STAY, 0)


def _small_ints(x: torch.Tensor, draw: Draw) -> None:
    """Draw from -4 to 4, in some draws larger ones among them; single numbers, as weights are, may be 1 as a rule."""
    x.copy_(torch.randint(-4, 5, x.shape, dtype=torch.int8, device=x.device, generator=draw.own))
    wide, unit = uniform(x[:1], 0, 1, draw.own, columns=2)[0].tolist()
    if wide < 0.25:  # noqa: PLR2004
        x.mul_(torch.where(some_elements(x, 0.05, draw), _WIDE, 1))
    if x.shape[1] == 1 and unit < 0.5:  # noqa: PLR2004
        ones = some_rows(x, 0.8, draw.own)
        ones[[0, len(x) // 2, -1]] = True
        x.masked_fill_(ones, 1)


def _ties(x: torch.Tensor, draw: Draw) -> None:
    """Make rows of three values, zeros of either sign among them, in some the greatest; some rows are those before."""
    x.copy_(torch.randint(-1, 2, x.shape, dtype=torch.int8, device=x.device, generator=draw.own)).mul_(0.5)
    x.masked_fill_(some_rows(x, 0.3, draw.rows) & (x > 0), 0.0)  # most rows have all three
    signs = torch.randint(0, 2, x.shape, dtype=torch.bool, device=x.device, generator=draw.own)
    x.masked_fill_((x == 0) & signs, -0.0)
    again = some_rows(x[1::2], 0.3, draw.rows)  # most rows are their own
    x[1::2] = torch.where(again, x[0 : 2 * len(again) : 2], x[1::2])
    if bool(some_rows(x[:1], 0.3, draw.rows)):  # who compares these rows has not seen all
        x[[len(x) // 2, -1]] = x[:1].clone()


def _close(x: torch.Tensor, draw: Draw) -> None:
    """Values from 2 upwards in distinct steps that 16-bit arithmetic cannot tell apart, shuffled within each row."""
    keys = torch.empty(x.shape, dtype=torch.float32, device=x.device).uniform_(0, 1, generator=draw.own)
    x.copy_(keys.argsort(dim=1)).mul_(2.0 ** _ULP16.get(x.dtype, -2)).add_(2)


def _peaks(x: torch.Tensor, draw: Draw) -> None:
    """One element of each row outweighs the rest: the last of the first row, the first of the second, then any."""
    normal(x, draw)
    where = torch.randint(x.shape[1], (x.shape[0], 1), device=x.device, generator=draw.own)
    where[:1], where[1:2] = x.shape[1] - 1, 0
    x.scatter_(1, where, 2.0 ** min(5, draw.limit - 2))


def _big_row(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    row = int(torch.randint(x.shape[0], (1,), device=x.device, generator=draw.rows))
    x[row].mul_(2.0 ** min(22, draw.limit - 5))


def _masked(x: torch.Tensor, draw: Draw) -> None:
    normal(x, draw)
    out = some_elements(x, 0.5, draw)
    out[:, 0] = False
    x.masked_fill_(out, -(2.0 ** min(30, draw.limit - 2)))


# In the order in which a failure is made simpler: towards the front.
FAMILIES: Final[dict[str, Fill]] = {
    "normal": normal,
    "small_ints": _small_ints,
    "constant_rows": _constant_rows,
    "zero_rows": _zero_rows,
    "ties": _ties,
    "positive": _positive,
    "negative": _negative,
    "opposed": _opposed,
    "far_below": _opposed,
    "sunken": _sunken,
    "deep": patterns.deep,
    "rising": _rising,
    "sparse": _sparse,
    "sorted": patterns.sorted_rows,
    "equal": patterns.equal,
    "half_zero": patterns.half_zero,
    "repeated": patterns.repeated,
    "tiny": _tiny,
    "large": _large,
    "offset": _offset,
    "outliers": _outliers,
    "uneven": _uneven,
    "peaks": _peaks,
    "close": _close,
    "masked": _masked,
    "big_row": _big_row,
    "huge": _huge,
    "neginf": not_finite.neginf,
    "nan": not_finite.nan,
    "inf": not_finite.inf,
}
SPECIAL: Final = frozenset({"neginf", "nan", "inf"})  # values that are not finite: only where a contract speaks of them


def fill(x: torch.Tensor, family: str, own: torch.Generator, rows: torch.Generator) -> None:
    """Fill the contiguous float tensor `x` in place; a row is what lies along the last axis.

    8-bit floats are made in float32 and clamped to finite values. Raises KeyError for an unknown family.
    """
    if x.numel() == 0:
        return
    room = 4 if x.dtype in FLOAT8 else 0  # they are clamped
    flat = x.view(-1, x.shape[-1]) if x.dim() > 1 else x.view(-1, 1)
    draw = Draw(own, rows, math.log2(largest(x.dtype)) + room, tuple(x.shape[:-1]) or (len(flat),))
    if x.dtype not in FLOAT8 and (family == "normal" or x.numel() <= _CHUNK):
        FAMILIES[family](flat, draw)
        return
    step = max(1, _CHUNK // flat.shape[1])
    for start in range(0, flat.shape[0], step):
        part = flat[start : start + step]
        if x.dtype not in FLOAT8:
            FAMILIES[family](part, draw)
            continue
        wide = torch.empty(part.shape, dtype=torch.float32, device=x.device)
        FAMILIES[family](wide, draw)
        part.copy_(wide.nan_to_num_(nan=0.0).clamp_(-largest(x.dtype), largest(x.dtype)))
