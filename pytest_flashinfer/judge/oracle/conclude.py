"""The truth about one output, from what the noise runs of its case showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.inputs.dtypes import torch_dtype
from pytest_flashinfer.judge.comparison import id_sets
from pytest_flashinfer.judge.floats import canonical, is_float, name_of, overflow_at, representable
from pytest_flashinfer.judge.oracle import bound, integers
from pytest_flashinfer.judge.oracle.bound import rows
from pytest_flashinfer.judge.oracle.truth import FAR, OutputTruth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.judge.oracle.spread import Spread

_MARGIN = 1.25  # the reference's own error, where it exceeds the model, is allowed with this margin
_SHORTER = (torch.bfloat16, torch.float16, torch.float32)


def conclude(spread: Spread, name: str, unsure: Mapping[int, torch.Tensor]) -> OutputTruth:
    """Put the truth about one output together."""
    spec, native, wide = spread.run.outputs[name], spread.native[name], spread.wide[name]
    if native is None or wide is None:
        return OutputTruth(name, spec.dtype, None)
    rows_here = unsure.get(wide.shape[0]) if wide.ndim else None
    if rows_here is not None and not bool(rows_here.any()):
        rows_here = None
    return _whole(spread, name, rows_here) if not is_float(spec.dtype) else _real(spread, name)


def _count(mask: torch.Tensor, word: str) -> str:
    number = int(mask.sum())
    return f"{number} {word}{'' if number == 1 else 's'}"


def _whole(spread: Spread, name: str, unsure_here: torch.Tensor | None) -> OutputTruth:
    """Put the truth about one output of integers together; `unsure_here` are rows that rounding decides."""
    dtype, native = spread.run.outputs[name].dtype, spread.native[name]
    assert native is not None
    undecided, allowed, reach, notes = None, None, None, []
    if not spread.plan.selects and bool(spread.unsure[name].any()):
        undecided = spread.unsure[name]
        reach = integers.allowed(spread.reach[name]) if name in spread.reach else None
        notes = [f"{_count(undecided, 'element')} undecided: at a boundary of rounding"]
    elif unsure_here is not None:
        undecided = unsure_here.reshape(-1, *[1] * (native.ndim - 1)).expand(native.shape)
        notes = [f"{_count(unsure_here, 'row')} undecided: near-ties"]
        if name in spread.replaced:
            allowed = id_sets.limit(spread.replaced[name], native.shape[-1])
            notes = [f"{_count(unsure_here, 'row')} compared by which ids they hold: near-ties"]
    if name in spread.replaced and _given_scores(spread, native):
        notes.append(f"where scores are equal, {name}:comparison=topk lets ids change places")
    held = spread.held[name] if allowed is not None else None
    return OutputTruth(
        name,
        dtype,
        native,
        undecided=undecided,
        replaced=allowed,
        held=held,
        reach=reach,
        exact=True,
        notes=tuple(notes),
    )


def _given_scores(spread: Spread, ids: torch.Tensor) -> bool:
    """Whether an input has the shape of scores of which rows of ids are the best."""
    given = (x for x in spread.run.inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point())
    rows_of = (x for x in given if x.ndim == ids.ndim and x.shape[:-1] == ids.shape[:-1])
    return any(x.shape[-1] >= ids.shape[-1] for x in rows_of)


def _real(spread: Spread, name: str) -> OutputTruth:
    """Put the truth about one output of floats together."""
    dtype, native, wide = spread.run.outputs[name].dtype, spread.native[name], spread.wide[name]
    assert native is not None
    assert wide is not None
    wide, squares, notes = wide.to(torch.float64), spread.squares.get(name), _remarks(spread, name)
    given = native.to(torch.float64)
    known, other = _values(given, wide, dtype)
    disputed, bare = int(other.sum()), other & known  # where only the reference itself has a value
    if disputed:
        notes.append(f"{disputed} elements are finite in only one of reference and float64")
    error = torch.nan_to_num((given - wide).abs_(), nan=0.0, posinf=0.0, neginf=0.0).masked_fill_(other, 0.0)
    rounded, limit = _fitting(spread, name, wide, error)
    if rounded != dtype:
        notes.append(f"the reference gives {rounded}: bounds have room for its last rounding")
    ratio = error / limit
    worst = _largest(ratio)
    if worst > 1:
        factor = rows(ratio).amax(dim=1, keepdim=True).expand(rows(ratio).shape).reshape(limit.shape)  # of each row
        limit = limit * torch.where(factor > 1, _MARGIN * factor, 1.0)
        if not spread.plan.decides:  # else a near-tie may have gone the other way, as in an honest kernel
            bare |= (factor > FAR) & known
        notes.append(f"the reference's own rounding is {worst:.3g} times the bound: widened where it is")
    undecided, some = other & ~known, bool(bare.any())
    if some:
        wide, limit = torch.where(bare, given, wide), torch.where(bare, bound.table(given, rounded), limit)
        notes.append(f"{int(bare.sum())} elements are judged by the reference as it is, bound by dtype")
    return OutputTruth(
        name,
        dtype,
        native,
        wide,
        limit,
        undecided if bool(undecided.any()) else None,
        "lifted",
        exact=squares is not None and not some and not bool(squares.any()),
        widened=max(1.0, worst),
        disputed=disputed,
        notes=tuple(notes),
    )


def _values(given: torch.Tensor, wide: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which elements the reference has a number for, and for which it and the float64 run say otherwise."""
    known = torch.isfinite(given)
    other = known != (torch.isfinite(wide) & (wide.abs() < overflow_at(dtype)))
    return known, other | (torch.isnan(given) != torch.isnan(wide))


def _remarks(spread: Spread, name: str) -> list[str]:
    """Return what has to be known of the noise runs."""
    notes = [] if name in spread.squares else ["no noise run was possible: bound by dtype"]
    if name in spread.moved:
        notes.append("bounds have room for the values of other ids, where their order is a matter of rounding")
    return notes


def _fitting(spread: Spread, name: str, wide: torch.Tensor, error: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Return the dtype that the reference rounds to, and the tolerated error of each element for that one."""
    dtype, native = spread.run.outputs[name].dtype, spread.native[name]
    assert native is not None
    limit = _limit(spread, name, wide, dtype)
    short = _rounded_to(native, dtype) if _largest(error / limit) > FAR else None
    return (dtype, limit) if short is None else (short, _limit(spread, name, wide, short))


def _largest(ratio: torch.Tensor) -> float:
    return float(ratio.max()) if ratio.numel() else 0.0


def _limit(spread: Spread, name: str, wide: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the tolerated error of each element, for results that are rounded to `dtype`."""
    squares = spread.squares.get(name)
    if squares is None:
        limit = bound.table(wide, dtype)
    else:
        limit = bound.allowance(wide, squares.to(torch.float64) / spread.runs, spread.runs, dtype)
    if name in spread.moved:
        limit = torch.maximum(limit, bound.among_others(spread.moved[name].to(torch.float64)))
    return limit


def _rounded_to(native: torch.Tensor, dtype: str) -> str | None:
    """Name a shorter dtype that holds all of the reference's values, as where it gives another one than is declared."""
    size = torch_dtype(canonical(dtype)).itemsize
    shorter = (each for each in _SHORTER if each.itemsize < size and representable(native, each))
    return next(map(name_of, shorter), None)
