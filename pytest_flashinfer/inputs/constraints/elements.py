"""Bounds on each element of a tensor that constraints state, and how drawn elements beyond them are put right.

A tensor is drawn by its role and its family, which know bounds of few kinds. What such a draw has beyond a bound is
folded back into the range, so that values keep to differ: `(x > 0).all()` makes magnitudes of them.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.box import ABOVE, BELOW, Box, Limit
from pytest_flashinfer.inputs.constraints.solved import solved
from pytest_flashinfer.inputs.constraints.trees import called, constant, demanded, names_of
from pytest_flashinfer.inputs.dtypes import as_numbers, integer_ends, is_float, largest
from pytest_flashinfer.inputs.roles.float_roles import ROTARY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_ROUNDS: Final = 4  # of tensors that bound each other, and of what is folded to an end that a range leaves out
_CHUNK: Final = 1 << 24  # elements that are put right at a time
_EVERY: Final = BELOW | ABOVE | {ast.Eq}
_CALLS: Final[dict[str, frozenset[type[ast.cmpop]]]] = {  # by which comparisons these bound all elements
    "max": BELOW, "amax": BELOW, "min": ABOVE, "amin": ABOVE, "abs": BELOW, "float": _EVERY, "double": _EVERY,
    "flatten": _EVERY,
}  # fmt: skip
_MIRRORED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE}
_NO_VALUES: Final = frozenset({"device", "dtype", "shape", "ndim"})
# Integers that nothing else is drawn from, and floats but for rows and tables that have a meaning as a whole.
_INTEGERS: Final = frozenset({"index", "token_ids", "top_k", "mask", "positions", "counts"})
_WHOLE: Final = ROTARY | {"unit", "probs", "log_probs", "zeros"}


@lru_cache(maxsize=64)
def limits_of(contract: Contract) -> tuple[Limit, ...]:
    """Return what the constraints of a definition demand of each element of its tensors."""
    tensors = [name for name, spec in contract.definition.inputs.items() if spec.shape is not None]
    every = limits_in((rule.tree for rule in contract.reading.data), tensors)
    return tuple(
        limit for limit in every if not isinstance(constant(limit.value), bool) or _is_bool(contract, limit.name)
    )


def limits_in(trees: Iterable[ast.expr], tensors: Collection[str]) -> Iterator[Limit]:
    """Yield what conditions demand of each element of some tensors."""
    for tree in trees:
        for sides in demanded(_unconditional(tree, tensors)):
            for found in solved(*sides, tensors):
                yield from _limits(*found)


def _unconditional(tree: ast.expr, tensors: Collection[str]) -> ast.expr:
    """Return what is demanded unless sizes excuse from it, as `n == 0 or x.min() > 0` does: then there is nothing."""
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or) else []
    of_data = [part for part in parts if names_of(part) & set(tensors)]
    return of_data[0] if len(of_data) == 1 else tree


def _is_bool(contract: Contract, name: str) -> bool:
    """Whether true is one value: of numbers it is all but 0."""
    return contract.definition.inputs[name].dtype == "bool" if name in contract.definition.inputs else False


def _limits(left: ast.expr, op: type[ast.cmpop], value: ast.expr) -> Iterator[Limit]:
    node, magnitude = left, False
    while isinstance(node, ast.Call):
        word, inner = called(node)
        if inner is None or op not in _CALLS.get(word, ()):
            return
        node, magnitude = inner, magnitude or word == "abs"
    named = node.value if isinstance(node, ast.Subscript) else node
    if isinstance(node, ast.Subscript) and names_of(named) & names_of(node.slice):
        return  # which elements these are changes with them, as in `x[x >= 0] < n`
    if isinstance(named, ast.Name) and op in _EVERY and named.id not in _read(value):
        yield Limit(named.id, node, op, value)
        if magnitude:
            yield Limit(named.id, node, _MIRRORED[op], ast.UnaryOp(ast.USub(), value))


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
    limits = [limit for limit in limits_of(contract) if limit.name in names and may_change(contract, plan, limit.name)]
    changed: set[str] = set()
    for number in range(_ROUNDS):
        mended = put_right(env, limits, inside=number > 0)
        changed |= mended
        if not mended:
            break
    return changed


def put_right(env: dict[str, Any], limits: Sequence[Limit], *, inside: bool = False) -> set[str]:
    """Put the tensors that `limits` are of right in place, once each; return the names of those that changed."""
    return {
        name
        for name in dict.fromkeys(limit.name for limit in limits)
        if isinstance(env.get(name), torch.Tensor)
        and _mend(env, [each for each in limits if each.name == name], inside=inside)
    }


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
    x = kept.float() if narrow else kept.to(torch.uint8) if kept.dtype is torch.bool else as_numbers(kept)
    box = Box.of(x, None if narrow or kept.dtype is torch.bool else kept.dtype)
    # A constraint may read them as they are, with its bounds rounded to their dtype (torch compares none of 8 bits), or
    # as numbers of Python.
    for each in (x, kept) if narrow and kept.itemsize > 1 else (x,):
        box.narrow(env, limits, each)
    if not x.numel() or not x.dim() or not bool(box.bad.any()):
        return False
    whole = (x, *(each.expand(x.shape) for each in (box.bad, box.low, box.high)))
    own = None if x.is_floating_point() else (x.min().to(torch.int64), x.max().to(torch.int64))
    for part, bad, *range_ in zip(*(each.split(max(1, _CHUNK // x[0].numel())) for each in whole), strict=True):
        low, high = (each[bad] for each in range_)
        if own is not None:
            part[bad] = _fold_integers(part[bad], low, high, own, integer_ends(box.dtype))
        else:
            low, high = _inside(low, high, kept.dtype) if inside else (low, high)
            part[bad] = _fold_floats(part[bad], low, high, largest(kept.dtype))
    if x is not kept:
        kept.copy_(x)
    return True


def _inside(low: torch.Tensor, high: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a range of floats that begins and ends a step inside another one, or its middle where it is short."""
    unit = 2 * torch.finfo(dtype).eps
    small = ((high - low) / 8).clamp_max(unit)  # beside zero
    steps = [torch.maximum(small, unit * end.abs()).minimum((high - low) / 2) for end in (low, high)]
    return torch.where(low.isinf(), low, low + steps[0]), torch.where(high.isinf(), high, high - steps[1])


def _fold_integers(
    values: torch.Tensor, low: torch.Tensor, high: torch.Tensor, own: Sequence[torch.Tensor], ends: tuple[int, int]
) -> torch.Tensor:
    """Return values from `low` to `high`; where one of these is an end of the dtype, that of the tensor's own range."""
    high = torch.where(high == ends[1], torch.maximum(low, own[1]), high)
    low = torch.where(low == ends[0], torch.minimum(high, own[0]), low)
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
