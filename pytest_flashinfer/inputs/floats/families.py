"""Named families of float values: each brings out a kind of bug that `randn` hides; all fill tensors in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from pytest_flashinfer.inputs.dtypes import FLOAT8, largest
from pytest_flashinfer.inputs.floats import patterns

_CHUNK: Final = 1 << 24  # elements that are made at a time where more memory than their own is needed
_ENTRIES: Final = 5  # powers of two from which on a whole entry of the first axis is alike
_RISE: Final = 128.0  # of a row: no exponential of its end less its beginning is finite in float32
_ULP16: Final = {torch.float32: -14, torch.float16: -9, torch.bfloat16: -6, torch.float64: -14}


@dataclass(frozen=True, slots=True)
class Draw:
    """Where one tensor's values come from.

    `own` differs from tensor to tensor. `rows` starts from the same state for every tensor of a recipe, so that the
    rows that stand out are the same ones in all tensors of as many rows: a residual is zero where its input is.
    """

    own: torch.Generator
    rows: torch.Generator
    limit: float  # log2 of the largest finite value of the tensor's dtype
    shape: tuple[int, ...] = ()  # of the rows

    @property
    def alike(self) -> int:
        """How many rows an entry of the first axis has."""
        return math.prod(self.shape[1:])


Fill = Callable[[torch.Tensor, Draw], None]


def _normal(x: torch.Tensor, draw: Draw) -> None:
    x.normal_(generator=draw.own)


def _uniform(x: torch.Tensor, low: float, high: float, generator: torch.Generator, *, columns: int = 1) -> torch.Tensor:
    wide = torch.empty((x.shape[0], columns), dtype=torch.float32, device=x.device)
    return wide.uniform_(low, high, generator=generator)


def _scale_rows(x: torch.Tensor, draw: Draw, low: float, high: float) -> None:
    """Multiply each row by 2**u, u uniform in [low, high]; the first row always gets the largest factor."""
    high = min(high, draw.limit - 4)
    amplitude = _uniform(x, min(low, high), high, draw.rows)
    amplitude[:1] = high
    x.mul_(amplitude.exp2_().to(x.dtype))


def _large(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    _scale_rows(x, draw, 3, 9)


def _huge(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    _scale_rows(x, draw, 13, 20)


def _tiny(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    _scale_rows(x, draw, -18, -7)


def _negative(x: torch.Tensor, draw: Draw) -> None:
    x.normal_(generator=draw.own).abs_().add_(1).neg_()
    _scale_rows(x, draw, 0, 8)  # a softmax that subtracts a logarithm of the sum is off by a rounding of these


def _opposed(x: torch.Tensor, draw: Draw) -> None:
    """Make rows below zero, which with queries above it give scores whose exponentials are 0, unless shifted."""
    x.normal_(generator=draw.own).abs_().add_(1).neg_()
    _scale_rows(x, draw, 0, 4)


def _rising(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that rise by more than exponentials in float32 span: what was the maximum at first is none later."""
    x.normal_(generator=draw.own).mul_(0.25).add_(torch.linspace(0, _RISE, x.shape[1], device=x.device).to(x.dtype))


def _sunken(x: torch.Tensor, draw: Draw) -> None:
    """Put all values so far below zero that their exponentials are 0 in float32, unless shifted."""
    x.normal_(generator=draw.own).mul_(8).sub_(2.0 ** min(9, draw.limit - 4))


def _positive(x: torch.Tensor, draw: Draw) -> None:
    x.normal_(generator=draw.own).abs_().add_(0.25)
    _scale_rows(x, draw, -1, 3)


def _offset(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    offsets = _uniform(x, 4, min(9, draw.limit - 4), draw.rows).exp2_().to(x.dtype)
    entries = float(_uniform(x[:1], 0, 1, draw.rows)) < 0.5  # noqa: PLR2004 - a norm may be one of a whole image
    x.add_(_of_groups(offsets, draw.alike if entries else 1))


def _outliers(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    count = max(1, x.shape[1] // 64)
    channels = torch.randint(x.shape[1], (count,), device=x.device, generator=draw.own)
    x[:, channels] *= 2.0 ** min(6, draw.limit - 4)


def _constant_rows(x: torch.Tensor, draw: Draw) -> None:
    # In small ones an eps shows, in large ones a variance from squares that is below zero; in still larger ones what a
    # norm loses that is one multiply-add an element.
    small, large = _uniform(x, -12, 2, draw.rows).exp2_(), _uniform(x, 3, 6, draw.rows).exp2_()
    sizes = torch.where(_uniform(x, 0, 1, draw.rows) < 0.2, large, small)  # noqa: PLR2004 - one in five
    values = torch.where(_uniform(x, 0, 1, draw.rows) < 0.5, -sizes, sizes)  # noqa: PLR2004 - half of each sign
    power = int(torch.randint(-2, 7, (1,), device=x.device, generator=draw.rows))
    x.copy_(_of_groups(values, draw.alike if power >= _ENTRIES else 1 << max(power, 0)))


def _of_groups(values: torch.Tensor, alike: int) -> torch.Tensor:
    """Return values [rows, 1] that are the same for so many neighbours: a norm may be one of several rows."""
    return values[torch.arange(len(values), device=values.device) // alike]


def _zero_rows(x: torch.Tensor, draw: Draw) -> None:
    """Make rows of zeros, in some draws entries of the first axis, as tokens with all their heads, in some all."""
    _normal(x, draw)
    every, entries = _uniform(x[:1], 0, 1, draw.rows, columns=2)[0].tolist()
    alike = draw.alike if entries < 0.5 else 1  # noqa: PLR2004
    zero = _uniform(x[::alike], 0, 1, draw.rows) < (1.0 if every < 0.25 else 0.5)  # noqa: PLR2004
    zero[:1] = True
    x.masked_fill_(zero.repeat_interleave(alike, dim=0)[: len(x)], 0)


def _sparse(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    keep = torch.empty(x.shape, dtype=torch.float16, device=x.device).uniform_(0, 1, generator=draw.own)
    x.masked_fill_(keep > 0.1, 0)  # noqa: PLR2004 - one in ten stays


def _small_ints(x: torch.Tensor, draw: Draw) -> None:
    x.copy_(torch.randint(-4, 5, x.shape, dtype=torch.int8, device=x.device, generator=draw.own))


def _ties(x: torch.Tensor, draw: Draw) -> None:
    """Make rows of three values, zeros of either sign among them, in some the greatest; some rows are those before."""
    x.copy_(torch.randint(-1, 2, x.shape, dtype=torch.int8, device=x.device, generator=draw.own)).mul_(0.5)
    x.masked_fill_((_uniform(x, 0, 1, draw.rows) < 0.3) & (x > 0), 0.0)  # noqa: PLR2004 - most rows have all three
    signs = torch.randint(0, 2, x.shape, dtype=torch.bool, device=x.device, generator=draw.own)
    x.masked_fill_((x == 0) & signs, -0.0)
    again = _uniform(x[1::2], 0, 1, draw.rows) < 0.3  # noqa: PLR2004 - most rows are their own
    x[1::2] = torch.where(again, x[0 : 2 * len(again) : 2], x[1::2])


def _close(x: torch.Tensor, draw: Draw) -> None:
    """Values from 2 upwards in distinct steps that 16-bit arithmetic cannot tell apart, shuffled within each row."""
    keys = torch.empty(x.shape, dtype=torch.float32, device=x.device).uniform_(0, 1, generator=draw.own)
    x.copy_(keys.argsort(dim=1)).mul_(2.0 ** _ULP16.get(x.dtype, -2)).add_(2)


def _peaks(x: torch.Tensor, draw: Draw) -> None:
    """One element of each row outweighs the rest: the last of the first row, the first of the second, then any."""
    _normal(x, draw)
    where = torch.randint(x.shape[1], (x.shape[0], 1), device=x.device, generator=draw.own)
    where[:1], where[1:2] = x.shape[1] - 1, 0
    x.scatter_(1, where, 2.0 ** min(5, draw.limit - 2))


def _big_row(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    row = int(torch.randint(x.shape[0], (1,), device=x.device, generator=draw.rows))
    x[row].mul_(2.0 ** min(22, draw.limit - 5))


def _masked(x: torch.Tensor, draw: Draw) -> None:
    _normal(x, draw)
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device).uniform_(0, 1, generator=draw.own) < 0.5  # noqa: PLR2004
    out[:, 0] = False
    x.masked_fill_(out, -(2.0 ** min(30, draw.limit - 2)))


def _neginf(x: torch.Tensor, draw: Draw) -> None:
    """Make rows that hold nothing else, rows with it up to some column or from one on, as masks do, and single ones."""
    _normal(x, draw)
    kinds = _uniform(x, 0, 1, draw.rows)
    kinds[:1] = 0.0
    column = torch.arange(x.shape[1], device=x.device)
    edge = torch.randint(x.shape[1], (x.shape[0], 1), device=x.device, generator=draw.own)
    some = torch.empty(x.shape, dtype=torch.float16, device=x.device).uniform_(0, 1, generator=draw.own) < 0.2  # noqa: PLR2004
    x.masked_fill_((kinds < 0.3) | some, -math.inf)  # noqa: PLR2004
    x.masked_fill_((kinds > 0.8) & (column < edge), -math.inf)  # noqa: PLR2004
    x.masked_fill_((kinds > 0.6) & (kinds <= 0.8) & (column > edge), -math.inf)  # noqa: PLR2004


def _one_entry(x: torch.Tensor, draw: Draw, value: float) -> None:
    _normal(x, draw)
    rows = _uniform(x, 0, 1, draw.rows).lt_(0.3).to(torch.bool)
    rows[:1] = True
    columns = torch.randint(x.shape[1], (x.shape[0], 1), device=x.device, generator=draw.own)
    x.scatter_(1, columns, torch.where(rows, value, x.gather(1, columns).to(torch.float32)).to(x.dtype))


def _nan(x: torch.Tensor, draw: Draw) -> None:
    _one_entry(x, draw, math.nan)


def _inf(x: torch.Tensor, draw: Draw) -> None:
    _one_entry(x, draw, math.inf)


# In the order in which a failure is made simpler: towards the front.
FAMILIES: Final[dict[str, Fill]] = {
    "normal": _normal,
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
    "peaks": _peaks,
    "close": _close,
    "masked": _masked,
    "big_row": _big_row,
    "huge": _huge,
    "neginf": _neginf,
    "nan": _nan,
    "inf": _inf,
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
