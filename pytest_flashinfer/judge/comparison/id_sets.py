"""Which ids a row holds: what still counts where rounding decides their order, and which of them are the last.

In a top-k of hundreds some neighbours are so near to one another that an honest kernel may have them change places:
hardly any row would be decided id by id. But nearly all of the ids it holds are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.inputs.dtypes import IDS, as_numbers
from pytest_flashinfer.judge.comparison.record import Comparison

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.truth import OutputTruth

PADDING = -1  # where a row has fewer ids than places
_FACTOR, _SPARE = 4, 4  # an honest kernel rounds more than the reference does, and there are few runs to learn from
_SHOWN = 8  # ids in a message
_LARGEST = 1 << 24  # ids; more would take too long to sort after each run


def countable(ids: torch.Tensor) -> bool:
    """Say whether rows [..., k] are ones of ids: integers, in no row one twice; -1 pads."""
    if ids.dtype not in IDS or ids.ndim < 2 or not 0 < ids.numel() <= _LARGEST:  # noqa: PLR2004
        return False
    return not bool(repeated(as_numbers(ids).sort(dim=-1).values).any())


def replaced(ids: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Count the ids of each row [..., k] that the same row of `others`, which has none twice, does not hold: [rows].

    Padding counts as often as it is there; an id that is there twice counts once.
    """
    rows = [_distinct(each.reshape(-1, each.shape[-1]).long()) for each in (ids, others)]
    both = torch.cat(rows, dim=1).sort(dim=1).values
    return ids.shape[-1] - (both[:, 1:] == both[:, :-1]).sum(dim=1)


def limit(most: int, width: int) -> int:
    """Return how many ids of a row may be others where noise replaced `most`."""
    return min(_FACTOR * most + _SPARE, width)


def held(ids: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return which ids of each row [..., k] the same row of `others` holds as well, wherever: bool [..., k].

    Of padding that is where `others` has as much of it, the first in the row first.
    """
    mine, theirs = (each.reshape(-1, each.shape[-1]).long() for each in (ids, others))
    mine, theirs = _numbered(mine), _numbered(theirs).sort(dim=1).values
    place = torch.searchsorted(theirs, mine).clamp_(max=theirs.shape[1] - 1)
    return (theirs.gather(1, place) == mine).view(ids.shape)


def compare_chosen(actual: torch.Tensor, truth: OutputTruth) -> Comparison:
    """Compare which ids the undecided rows hold; as many as `truth.replaced` may be others than the reference's.

    Those that every noise run has (`truth.held`) have to be there.
    """
    native, allowed = truth.native, truth.replaced
    assert native is not None
    assert truth.undecided is not None
    assert truth.held is not None
    assert allowed is not None
    open_rows = undecided_rows(truth.undecided)
    counts = replaced(actual, native).masked_fill(~open_rows, 0)
    lost = (truth.held & ~held(native, actual)).reshape(len(counts), -1) & open_rows[:, None]
    bad = ((counts > allowed) | lost.any(dim=1)).nonzero().flatten().tolist()
    if not bad:
        return Comparison(truth.name, ok=True, n_total=len(counts), how="ids")
    row = max(bad, key=lambda each: int(counts[each]))
    mine, theirs = (x.reshape(-1, x.shape[-1])[row].tolist() for x in (actual, native))
    wrong = [each for each in mine if each not in set(theirs)] or [each for each in mine if mine.count(each) > 1]
    missing = [each for each, is_lost in zip(theirs, lost[row].tolist(), strict=True) if is_lost]
    lines = (
        f"{truth.name} row {row}: {int(counts[row])} of {len(mine)} ids are not the reference's, such as {wrong[0]}",
        *([f"missing there, and not nearly the last: {', '.join(map(str, missing[:_SHOWN]))}"] if missing else []),
        f"{len(bad)} of {len(counts)} rows hold other ids",
        f"bound: {allowed} ids, of those that are nearly as good; their order is a matter of rounding there",
    )
    place = mine.index(wrong[0])
    return Comparison(
        truth.name, ok=False, problem="values", n_bad=len(bad), n_total=len(counts), worst=(row, place),
        actual=mine[place], expected=theirs[place], how="ids", lines=lines,
    )  # fmt: skip


def undecided_rows(undecided: torch.Tensor) -> torch.Tensor:
    """Return which rows [..., k] are undecided."""
    return undecided.reshape(-1, undecided.shape[-1]).any(dim=1)


def repeated(ordered: torch.Tensor) -> torch.Tensor:
    """Return which ids of sorted rows [..., k] are there before as well, but for padding: bool [..., k]."""
    twice = torch.zeros_like(ordered, dtype=torch.bool)
    twice[..., 1:] = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != PADDING)
    return twice


def _distinct(rows: torch.Tensor) -> torch.Tensor:
    """Return sorted rows in which padding is numbered, the same way in all, and repeated ids are no ids of anything."""
    ordered, place = rows.sort(dim=1).values, torch.arange(rows.shape[1], device=rows.device)
    spoilt = torch.where(repeated(ordered), -(1 << 40) - place, ordered)
    return torch.where(ordered == PADDING, _numbered(ordered), spoilt)


def _numbered(rows: torch.Tensor) -> torch.Tensor:
    """Return rows in which the first padding, the second and so on are told apart, the same way in all."""
    padding = rows == PADDING
    return torch.where(padding, -(1 << 34) - padding.cumsum(dim=1), rows)
