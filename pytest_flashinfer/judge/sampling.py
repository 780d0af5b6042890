"""The judge of sampled ids: their support, and whether they are drawn from the reference's distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from .comparison import Comparison
from .draws import FALSE_ALARM, Draws

if TYPE_CHECKING:
    from .truth import OutputTruth


def compare_samples(actual: torch.Tensor, truth: OutputTruth, draws: Draws | None = None) -> Comparison:
    """Judge sampled ids [rows]: each in the support of its row; together, as drawn from the rows' distributions.

    `draws` carries the test over several calls; without it this call alone is tested. Where the inputs decide what is
    drawn (a seed) draws are not independent, and only the support is looked at. Where the reference does not say what
    it draws from (no `torch.multinomial`), the ids must be no larger than the reference's own range allows:
    non-negative.
    """
    flat = actual.reshape(-1)
    mass, support = truth.probabilities, truth.support
    if mass is None or support is None:
        bad = (flat < 0) & (True if truth.native is None else ~torch.isin(flat, truth.native))  # -1 may pad
        note = "the reference's distribution is not known: only the range is checked"
        return _support(truth, flat, bad, note) if bool(bad.any()) else _fine(truth, flat, note)
    outside = (flat < 0) | (flat >= mass.shape[1])
    inside = flat.long().clamp(0, mass.shape[1] - 1)
    bad = outside | ~support.gather(1, inside[:, None])[:, 0]
    if bool(bad.any()):
        return _support(truth, flat, bad, "not in the support of the reference's distribution")
    if truth.seeded:
        return _fine(truth, flat, "in the support; the inputs decide what is drawn: the distribution is not tested")
    draws = Draws() if draws is None else draws
    draws.add(flat, mass, support)
    found = draws.look()
    if found is None:
        return _fine(truth, flat, "in the support")
    chance, fault = found
    if chance < FALSE_ALARM:
        line = f"{truth.name}: {draws.total} draws {fault}"
        line += ", those of all calls so far: one case by itself may well pass"
        detail = f"chance {chance:.2g} for an honest sampler, {FALSE_ALARM:g} is refused"
        return Comparison(
            truth.name, ok=False, problem="values", n_total=flat.numel(), how="sampling", lines=(line, detail)
        )
    return _fine(truth, flat, f"in the support, distribution ok (chance {chance:.2g} over {draws.total} draws)")


def _fine(truth: OutputTruth, flat: torch.Tensor, note: str) -> Comparison:
    return Comparison(truth.name, ok=True, n_total=flat.numel(), how="sampling", lines=(f"{truth.name}: ok, {note}",))


def _support(truth: OutputTruth, flat: torch.Tensor, bad: torch.Tensor, reason: str) -> Comparison:
    row = int(bad.to(torch.uint8).argmax())
    value = int(flat[row])
    likelihood = math.nan
    if truth.probabilities is not None and 0 <= value < truth.probabilities.shape[1]:
        likelihood = float(truth.probabilities[row, value])
    lines = (
        f"{truth.name}[{row}]: id {value} is {reason} (probability {likelihood:g})",
        f"{int(bad.sum())} of {flat.numel()} draws",
    )
    return Comparison(
        truth.name,
        ok=False,
        problem="values",
        n_bad=int(bad.sum()),
        n_total=flat.numel(),
        worst=(row,),
        actual=value,
        how="sampling",
        lines=lines,
    )
