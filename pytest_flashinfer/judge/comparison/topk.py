"""The top-k comparison: which ids were chosen, where equal scores may change places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.comparison.id_sets import PADDING, repeated
from pytest_flashinfer.judge.comparison.record import Comparison
from pytest_flashinfer.judge.floats import is_float

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import TensorSpec
    from pytest_flashinfer.judge.oracle.truth import OutputTruth


def compare_topk(
    actual: torch.Tensor, truth: OutputTruth, inputs: Mapping[str, Any], *, ranked: bool = False
) -> Comparison:
    """Compare ids [..., k]: in range, none twice where the reference has none twice, and by score the same set as its.

    The scores are the floating input [..., n] of which the reference's ids are a top-k; where no input is, the sets of
    ids must be equal. -1 pads: as many in each row as in the reference's. Order within a row does not matter, unless
    another output has the ids' values: of `ranked` ones only those with equal scores may change places.
    """
    native = truth.native
    assert native is not None
    mine, theirs = actual.reshape(-1, _width(actual)).long(), native.reshape(-1, _width(native)).long()
    scores = _scores(theirs, native, inputs)
    shared = repeated(theirs.sort(dim=1).values).any(dim=1, keepdim=True)  # as pages may be
    twice = repeated(mine.sort(dim=1).values) & ~shared
    checks = [("outside the range of ids", _outside(mine, scores)), ("chosen twice", twice)]
    if scores is None:
        different = mine != theirs if ranked else mine.sort(dim=1).values != theirs.sort(dim=1).values
        what = "ids in their order" if ranked else "set"
        checks.append((f"not the reference's {what}, and no input holds the scores that could tie", different))
    else:
        safe = mine.masked_fill(_outside(mine, scores), PADDING)
        given, wanted = _values(safe, scores), _values(theirs, scores)
        checks.append(("not among the best by score", _best_first(given) != _best_first(wanted)))
        checks.append(("another number of -1 than the reference's", _padded_otherwise(mine, theirs)))
        if ranked:
            checks.append(("in another order than the values that go with them", given != wanted))
    decided = torch.ones(mine.shape[0], dtype=torch.bool, device=mine.device)
    if truth.undecided is not None and truth.undecided.numel():
        decided = ~truth.undecided.reshape(mine.shape).any(dim=1)
    for reason, bad in checks:
        rows = (bad.any(dim=1) & decided).nonzero().flatten().tolist() if bad.numel() else []
        if rows:
            return _failed(truth, reason, bad, rows, mine, theirs)
    return Comparison(truth.name, ok=True, n_total=actual.numel(), how="top-k", lines=(f"{truth.name}: ok as a top-k",))


def is_ranked(name: str, declared: Mapping[str, TensorSpec]) -> bool:
    """Whether another output is declared to hold a value for each of these ids, so that their order is not free."""
    others = (spec for other, spec in declared.items() if other != name and is_float(spec.dtype))
    return any(spec.shape is not None and spec.shape == declared[name].shape for spec in others)


def _width(ids: torch.Tensor) -> int:
    return int(ids.shape[-1]) if ids.ndim and ids.numel() else 1


def _failed(  # noqa: PLR0913, PLR0917 - the facts of one failure
    truth: OutputTruth, reason: str, bad: torch.Tensor, rows: list[int], mine: torch.Tensor, theirs: torch.Tensor
) -> Comparison:
    row = rows[0]
    place = int(bad[row].to(torch.uint8).argmax())
    lines = (
        f"{truth.name} row {row}: {reason}: ids {mine[row].tolist()}, reference {theirs[row].tolist()}",
        f"{len(rows)} of {mine.shape[0]} rows differ",
        "bound: top-k (ties may change places)",
    )
    return Comparison(
        truth.name,
        ok=False,
        problem="values",
        n_bad=len(rows),
        n_total=mine.shape[0],
        worst=(row, place),
        actual=int(mine[row, place]),
        expected=int(theirs[row, place]),
        how="top-k",
        lines=lines,
    )


def _outside(ids: torch.Tensor, scores: torch.Tensor | None) -> torch.Tensor:
    outside = ids < PADDING
    return outside if scores is None else outside | (ids >= scores.shape[1])


def _padded_otherwise(mine: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Return where only one of both pads, in rows that it pads more of: a score of -inf is as little as none."""
    pads, wanted = mine == PADDING, theirs == PADDING
    return (pads != wanted) & (pads.sum(dim=1, keepdim=True) != wanted.sum(dim=1, keepdim=True))


def _values(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Return the scores of the ids of each row; padding counts as less than anything."""
    return scores.gather(1, ids.clamp_min(0)).masked_fill(ids == PADDING, -torch.inf)


def _best_first(values: torch.Tensor) -> torch.Tensor:
    return values.sort(dim=1, descending=True).values


def _scores(ids: torch.Tensor, shaped: torch.Tensor, inputs: Mapping[str, Any]) -> torch.Tensor | None:
    """Find the input of which every row of the reference's ids is a top-k."""
    for value in inputs.values():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.ndim != shaped.ndim:
            continue
        if value.shape[:-1] != shaped.shape[:-1] or value.shape[-1] < ids.shape[1] or not ids.numel():
            continue
        scores = value.reshape(ids.shape[0], -1).to(torch.float64)
        if bool((ids >= scores.shape[1]).any()):
            continue
        padded = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
        chosen = padded.scatter_(1, ids.where(ids >= 0, scores.shape[1]), value=True)[:, :-1]
        worst = scores.masked_fill(~chosen, torch.inf).amin(dim=1)
        best = scores.masked_fill(chosen, -torch.inf).amax(dim=1)
        if bool((worst >= best).all()):
            return scores
    return None
