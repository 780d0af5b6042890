"""Values that a role has seldom, beside the usual ones: what clamps or tables of a kernel at its usual range hide.

They are mixed in element by element where a case is not the plainest one: whether it is fair is asked of those alone.
How far they go is what kernels hold that multiply in 16 bits and sum in float32, with room for the sum.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.dtypes import FLOAT8, largest

if TYPE_CHECKING:
    from collections.abc import Callable

    _Fill = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

_SHARE: Final = 0.15  # of all elements
_ROWS: Final = 0.25  # of a weight that are large
_LARGE: Final = (3.0, 9.0)  # log2 of a factor for these
# Families without large values, where a weight has room for some, and those with large ones, where scales are small.
_QUIET: Final = frozenset({"zero_rows", "sparse", "tiny", "ties"})
_WITH_EMPTY: Final = frozenset({"sparse", "half_zero"})  # families in which a weight has rows of zeros
_EMPTY: Final = 0.1  # of these, and one more
_LOUD: Final = frozenset(
    {"large", "huge", "big_row", "outliers", "offset", "negative", "opposed", "far_below", "peaks", "constant_rows"}
)
_OF_BIAS: Final = frozenset({"negative", "ties", "small_ints", "constant_rows", "zero_rows"})  # kept as they are for


def _uniform(x: torch.Tensor, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    wide = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    return wide.uniform_(low, high, generator=generator)


def _normal(x: torch.Tensor, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    """Return normal values of either sign times 2**u, u uniform from `low` to `high`."""
    wide = torch.empty(x.shape, dtype=torch.float32, device=x.device).normal_(generator=generator)
    return wide.mul_(_uniform(x, low, high, generator).exp2_())


def _norm_weights(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return weights of either sign, large or zero, as checkpoints have them, and some that are larger than those."""
    usual, larger = _normal(x, 1, 6, generator), _normal(x, 6, min(12.0, math.log2(largest(x.dtype)) - 7), generator)
    kind = _uniform(x, 0, 1, generator)
    return torch.where(kind < 0.2, 0.0, torch.where(kind < 0.35, larger, usual))  # noqa: PLR2004 - shares of these


def _time_steps(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return steps before their softplus: zero, as of padding, so large that exponentials are infinite, and between."""
    usual, kind = _normal(x, 0, 3, generator), _uniform(x, 0, 1, generator)
    beyond = _uniform(x, 89, 120, generator)
    return torch.where(kind < 0.2, 0.0, torch.where(kind < 0.4, beyond, usual))  # noqa: PLR2004 - shares of these


def _powers(low: int, high: int) -> _Fill:
    """Return powers of two: to scale by one costs no accuracy in any arithmetic."""
    return lambda x, generator: _uniform(x, low - 0.5, high + 0.5, generator).round_().exp2_()


def _spread(low: float, high: float, sign: float = 1) -> _Fill:
    return lambda x, generator: _uniform(x, low, high, generator).exp2_().mul_(sign)


_WIDER: Final[dict[str, _Fill]] = {
    "unit_weight": _norm_weights,
    "bias": lambda x, generator: _normal(x, 1, 5, generator),
    "scale": _powers(-5, 5),
    "weight_scale": _powers(-5, 5),
    "temperature": _spread(-4, 2),
    "a_log": lambda x, generator: _uniform(x, -4, 3, generator),
    "negative": _spread(-6, 4, -1),
    "time_step": _time_steps,
    "log_decay": _spread(-10, 2, -1),  # a chunk's decay has to stay one whose inverse is finite
    "strong_log_decay": _spread(-10, 8, -1),  # said to forget all that was before
    "decay": lambda x, generator: _uniform(x, 0.001, 1.05, generator).clamp_(max=1),  # its logarithm is finite
}
KINDS: Final = frozenset(_WIDER)  # roles of tensors with some values beyond the usual range
_SMALLER: Final[dict[str, _Fill]] = {"scale": _powers(-5, 1), "weight_scale": _powers(-5, 1)}


def widen(x: torch.Tensor, kind: str, family: str, generator: torch.Generator) -> None:
    """Have some elements of a tensor of this role lie beyond its usual range, in place, if the family leaves room."""
    other = _WIDER.get(kind)
    if other is None or family == "normal" or (kind == "bias" and family in _OF_BIAS):
        return
    other = _SMALLER.get(kind, other) if family in _LOUD else other
    chosen = _uniform(x, 0, 1, generator) < _SHARE
    x.copy_(torch.where(chosen, other(x, generator), x.to(torch.float32)))


def enlarge_rows(x: torch.Tensor, family: str, generator: torch.Generator) -> None:
    """Multiply some rows of a weight by a power of two or what lies between, in place, if the family leaves room."""
    if family not in _QUIET or x.dim() < 2:  # noqa: PLR2004 - rows
        return
    flat = x.view(-1, x.shape[-1])
    factors, chosen = _uniform(flat[:, :1], *_LARGE, generator).exp2_(), _uniform(flat[:, :1], 0, 1, generator) < _ROWS
    flat.mul_(torch.where(chosen, factors, 1.0).to(x.dtype))


def empty_rows(x: torch.Tensor, family: str, generator: torch.Generator) -> None:
    """Make some rows of a weight, and one of its columns, zero in place, if the family is about zeros."""
    if family not in _WITH_EMPTY or x.dim() < 2:  # noqa: PLR2004 - rows
        return
    raw = (x.view(torch.uint8) if x.dtype in FLOAT8 else x).view(-1, x.shape[-1])
    empty = _uniform(raw[:, 0], 0, 1, generator) < _EMPTY
    empty[int(torch.randint(len(raw), (), device=x.device, generator=generator))] = True
    raw[empty] = 0
    raw[:, int(torch.randint(raw.shape[1], (), device=x.device, generator=generator))] = 0
