"""Bounds on each element of a tensor that constraints state, and how drawn elements beyond them are put right.

A tensor is drawn by its role and its family, which know bounds of few kinds. What such a draw has beyond a bound is
folded back into the range, so that values keep to differ: `(x > 0).all()` makes magnitudes of them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.data.evaluate import run
from pytest_flashinfer.data.vocabulary import MODULES
from pytest_flashinfer.inputs.dtypes import is_float, largest
from pytest_flashinfer.inputs.float_roles import ROTARY
from pytest_flashinfer.inputs.hints import constant, demanded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

    _Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_ROUNDS: Final = 4  # of tensors that bound each other, and of what is folded to an end that a range leaves out
_CHUNK: Final = 1 << 24  # elements that are put right at a time
_BELOW: Final = frozenset({ast.Lt, ast.LtE})
_ABOVE: Final = frozenset({ast.Gt, ast.GtE})
_EVERY: Final = _BELOW | _ABOVE | {ast.Eq}
_CALLS: Final[dict[str, frozenset[type[ast.cmpop]]]] = {  # by which comparisons these bound all elements
    "max": _BELOW, "amax": _BELOW, "min": _ABOVE, "amin": _ABOVE, "abs": _BELOW, "float": _EVERY, "double": _EVERY,
    "flatten": _EVERY,
}  # fmt: skip
_MIRRORED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE}
_NO_VALUES: Final = frozenset({"device", "dtype", "shape", "ndim"})
# Integers that nothing else is drawn from, and floats but for rows and tables that have a meaning as a whole.
_INTEGERS: Final = frozenset({"index", "token_ids", "top_k", "mask"})
_WHOLE: Final = ROTARY | {"unit", "probs", "zeros"}


@dataclass(frozen=True, slots=True)
class Limit:
    """`part op value` holds for every element of `part`, which is the tensor `name` or a slice of it."""

    name: str
    part: ast.expr
    op: type[ast.cmpop]
    value: ast.expr


@lru_cache(maxsize=64)
def limits_of(contract: Contract) -> tuple[Limit, ...]:
    """Return what the constraints of a definition demand of each element of its tensors."""
    rules = contract.reading.data
    every = (limit for rule in rules for sides in demanded(rule.tree) for limit in _limits(*sides))
    return tuple(limit for limit in every if constant(limit.value) is not True or _is_bool(contract, limit.name))


def _is_bool(contract: Contract, name: str) -> bool:
    """Whether true is one value: of numbers it is all but 0."""
    return contract.definition.inputs[name].dtype == "bool" if name in contract.definition.inputs else False


def _limits(left: ast.expr, op: type[ast.cmpop], value: ast.expr) -> Iterator[Limit]:
    node, magnitude = left, False
    while isinstance(node, ast.Call):
        word, inner = _called(node)
        if inner is None or op not in _CALLS.get(word, ()):
            return
        node, magnitude = inner, magnitude or word == "abs"
    named = node.value if isinstance(node, ast.Subscript) else node
    if isinstance(named, ast.Name) and op in _EVERY and named.id not in _read(value):
        yield Limit(named.id, node, op, value)
        if magnitude:
            yield Limit(named.id, node, _MIRRORED[op], ast.UnaryOp(ast.USub(), value))


def _called(node: ast.Call) -> tuple[str, ast.expr | None]:
    """Return the function and its only operand: of `max(x)`, `x.max()` and `torch.max(x)`."""
    function, operands = node.func, list(node.args)
    owner = function.value if isinstance(function, ast.Attribute) else None
    if owner is not None and not (isinstance(owner, ast.Name) and owner.id in MODULES):
        operands.insert(0, owner)
    word = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return word, operands[0] if len(operands) == 1 and not node.keywords else None


def _read(tree: ast.expr) -> set[str]:
    """Return the names whose values a tree needs: not that of `x` in `x.device`."""
    nodes = list(ast.walk(tree))
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in _NO_VALUES}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in owners}


def mend(contract: Contract, plan: Plan, env: dict[str, Any], names: Collection[str]) -> set[str]:
    """Put those elements of the tensors `names` right, in place, that are beyond what constraints allow.

    `env` has all tensors, scalars and sizes. Returns the names of tensors that changed. What cannot be computed, or
    cannot hold, is left; so are tensors that others follow from.
    """
    changed: set[str] = set()
    limits = [limit for limit in limits_of(contract) if limit.name in names and may_change(contract, plan, limit.name)]
    for number in range(_ROUNDS):
        mended = {
            name
            for name in dict.fromkeys(limit.name for limit in limits)
            if isinstance(env.get(name), torch.Tensor)
            and _mend(env, [each for each in limits if each.name == name], inside=number > 0)
        }
        changed |= mended
        if not mended:
            break
    return changed


def may_change(contract: Contract, plan: Plan, name: str) -> bool:
    """Say whether elements of a tensor may be put elsewhere: nothing follows from it, nor from it as a whole."""
    if name not in plan.roles:
        return False
    kind = plan.roles[name].kind
    return kind not in _WHOLE if is_float(contract.dtype(name)) else kind in _INTEGERS


def _mend(env: dict[str, Any], limits: list[Limit], *, inside: bool) -> bool:
    """Put one tensor right; say whether anything of it changed.

    Floats are folded at the ends of a range, so that 0.5 and -0.5 stay equal, or `inside` them: an end may be left out,
    or the nearest number of the dtype lie beyond it.
    """
    kept = env[limits[0].name]
    narrow = kept.is_floating_point() and kept.itemsize < 4  # noqa: PLR2004 - of float32
    x = kept.float() if narrow else kept.to(torch.uint8) if kept.dtype is torch.bool else kept
    box = _Box.of(x)
    # A constraint may read them as they are, with its bounds rounded to their dtype (torch compares none of 8 bits), or
    # as numbers of Python.
    for each in (x, kept) if narrow and kept.itemsize > 1 else (x,):
        for limit in limits:
            box.narrow({**env, limit.name: each}, limit)
    if not x.numel() or not x.dim() or not bool(box.bad.any()):
        return False
    whole = (x, *(each.expand(x.shape) for each in (box.bad, box.low, box.high)))
    ends = None if x.is_floating_point() else (x.min().to(torch.int64), x.max().to(torch.int64))
    for part, bad, *range_ in zip(*(each.split(max(1, _CHUNK // x[0].numel())) for each in whole), strict=True):
        low, high = (each[bad] for each in range_)
        if ends is not None:
            part[bad] = _fold_integers(part[bad], low, high, *ends)
        else:
            low, high = _inside(low, high, kept.dtype) if inside else (low, high)
            part[bad] = _fold_floats(part[bad], low, high, largest(kept.dtype))
    if x is not kept:
        kept.copy_(x)
    return True


def _misses(env: dict[str, Any], limit: Limit) -> torch.Tensor | None:
    """Return which elements of the part break a limit; `None` where that cannot be said of each."""
    try:
        misses = torch.logical_not(run(ast.Compare(limit.part, [limit.op()], [limit.value]), env))
        return misses if misses.shape == run(limit.part, env).shape else None
    except (ConstraintError, TypeError):
        return None


@dataclass(slots=True)
class _Box:
    """The least and the greatest value of each element, in 64 bits, and which are `bad`; all may be broadcast."""

    low: torch.Tensor
    high: torch.Tensor
    bad: torch.Tensor
    dtype: torch.dtype
    shape: torch.Size

    @classmethod
    def of(cls, x: torch.Tensor) -> _Box:
        """Return what the dtype allows."""
        floats = x.is_floating_point()
        ends = (-torch.inf, torch.inf) if floats else (torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).max)
        wide = torch.float64 if floats else torch.int64
        low, high = (torch.tensor(end, dtype=wide, device=x.device) for end in ends)
        return cls(low, high, torch.zeros((), dtype=torch.bool, device=x.device), x.dtype, x.shape)

    def narrow(self, env: dict[str, Any], limit: Limit) -> None:
        """Take in what a limit says; nothing where it cannot be computed."""
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
        if limit.op not in _BELOW:
            self.low = joined(self.low, torch.maximum, least)
        if limit.op not in _ABOVE:
            self.high = joined(self.high, torch.minimum, most)


def _ends(op: type[ast.cmpop], value: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least and the greatest value beside `value` that a comparison allows; of floats, `value` itself."""
    if dtype.is_floating_point:
        return value, value
    ends, strict = torch.iinfo(dtype), op in {ast.Lt, ast.Gt}
    least, most = (value.floor() + 1, value.ceil() - 1) if strict else (value.ceil(), value.floor())
    least, most = (end.clamp(float(ends.min), float(ends.max)).to(torch.int64) for end in (least, most))
    return least, most


def _inside(low: torch.Tensor, high: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a range of floats that begins and ends a step inside another one, or its middle where it is short."""
    unit = 2 * torch.finfo(dtype).eps
    small = ((high - low) / 8).clamp_max(unit)  # beside zero
    steps = [torch.maximum(small, unit * end.abs()).minimum((high - low) / 2) for end in (low, high)]
    return torch.where(low.isinf(), low, low + steps[0]), torch.where(high.isinf(), high, high - steps[1])


def _fold_integers(
    values: torch.Tensor, low: torch.Tensor, high: torch.Tensor, least: torch.Tensor, most: torch.Tensor
) -> torch.Tensor:
    """Return values from `low` to `high`; where one of these is open, the tensor's own range ends there."""
    ends = torch.iinfo(values.dtype)
    high = torch.where(high == ends.max, torch.maximum(low, most), high)
    low = torch.where(low == ends.min, torch.minimum(high, least), low)
    return (low + (values.to(torch.int64) - low) % (high - low + 1).clamp_min(1)).to(values.dtype)


def _fold_floats(values: torch.Tensor, low: torch.Tensor, high: torch.Tensor, most: float) -> torch.Tensor:
    """Return values from `low` to `high`, reflected there; what is not finite counts as zero or the largest, `most`."""
    wide = values.to(torch.float64).nan_to_num_(nan=0.0, posinf=most, neginf=-most)
    span = high - low
    turn = ((wide - low) / span).remainder(2)
    both = low + torch.where(turn > 1, 2 - turn, turn) * span
    one = torch.where(high.isinf(), low + (wide - low).abs(), high - (high - wide).abs())
    folded = torch.where(span.isfinite(), torch.where(span > 0, both, low), one)
    return folded.clamp_(-most, most).to(values.dtype)
