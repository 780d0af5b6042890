"""The range of each element of a tensor: what several limits on it leave."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.data.evaluate import run
from pytest_flashinfer.inputs.dtypes import integer_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    _Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

BELOW: Final = frozenset({ast.Lt, ast.LtE})
ABOVE: Final = frozenset({ast.Gt, ast.GtE})


@dataclass(frozen=True, slots=True)
class Limit:
    """`part op value` holds for every element of `part`, which is the tensor `name` or a slice of it."""

    name: str
    part: ast.expr
    op: type[ast.cmpop]
    value: ast.expr


@dataclass(slots=True)
class Box:
    """The least and the greatest value of each element, in 64 bits, and which are `bad`; all may be broadcast."""

    low: torch.Tensor
    high: torch.Tensor
    bad: torch.Tensor
    dtype: torch.dtype
    shape: torch.Size

    @classmethod
    def of(cls, x: torch.Tensor, dtype: torch.dtype | None = None) -> Box:
        """Return what the dtype allows: that of `x`, unless it only stands for another that torch cannot compute in."""
        dtype = dtype or x.dtype
        ends = (-torch.inf, torch.inf) if dtype.is_floating_point else integer_ends(dtype)
        wide = torch.float64 if dtype.is_floating_point else torch.int64
        low, high = (torch.tensor(end, dtype=wide, device=x.device) for end in ends)
        return cls(low, high, torch.zeros((), dtype=torch.bool, device=x.device), dtype, x.shape)

    def narrow(self, env: Mapping[str, Any], limits: Iterable[Limit], x: torch.Tensor) -> None:
        """Take in what limits say of `x`; nothing where it cannot be computed."""
        for limit in limits:
            self._narrow({**env, limit.name: x}, limit)

    def _narrow(self, env: dict[str, Any], limit: Limit) -> None:
        misses = _misses(env, limit)
        if misses is None:
            return
        value = torch.as_tensor(run(limit.value, env), device=misses.device).to(torch.float64)
        least, most = _ends(limit.op, value, self.dtype)

        def joined(whole: torch.Tensor, join: _Join, value: torch.Tensor) -> torch.Tensor:
            if isinstance(limit.part, ast.Name):
                return join(whole, value)
            whole = whole.expand(self.shape).clone()
            part = run(limit.part, {**env, limit.name: whole})
            part.copy_(join(part, value))
            return whole

        self.bad = joined(self.bad, torch.logical_or, misses)
        if limit.op not in BELOW:
            self.low = joined(self.low, torch.maximum, least)
        if limit.op not in ABOVE:
            self.high = joined(self.high, torch.minimum, most)


def _ends(op: type[ast.cmpop], value: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least and the greatest value beside `value` that a comparison allows; of floats, `value` itself."""
    if dtype.is_floating_point:
        return value, value
    (lowest, highest), strict = integer_ends(dtype), op in {ast.Lt, ast.Gt}
    least, most = (value.floor() + 1, value.ceil() - 1) if strict else (value.ceil(), value.floor())
    least, most = (end.clamp(float(lowest), float(highest)).to(torch.int64) for end in (least, most))
    return least, most


def _misses(env: dict[str, Any], limit: Limit) -> torch.Tensor | None:
    """Return which elements of the part break a limit; `None` where that cannot be said of each."""
    try:
        misses = torch.logical_not(run(ast.Compare(limit.part, [limit.op()], [limit.value]), env))
        return misses if misses.shape == run(limit.part, env).shape else None
    except (ConstraintError, TypeError):
        return None
