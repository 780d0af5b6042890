"""The judge of sampled ids: their support, and whether they are drawn from the reference's distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from .comparison import Comparison
from .draws import FALSE_ALARM, Draws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .truth import OutputTruth


def compare_samples(
    actual: torch.Tensor, truth: OutputTruth, inputs: Mapping[str, Any], draws: Draws | None = None
) -> Comparison:
    """Judge sampled ids [rows]: each in the support of its row; together, as drawn from the rows' distributions.

    `draws` carries the test over several calls; without it this call alone is tested. Where the inputs decide what is
    drawn (a seed) draws are not independent, and only the support is looked at. Where the reference does not say what
    it draws from (no `torch.multinomial`), ids must be ones that some floating input has a row or column for.
    """
    flat = actual.reshape(-1)
    mass, support = truth.probabilities, truth.support
    if mass is None or support is None:
        bad = (flat < 0) | (flat >= _largest(inputs))
        if truth.native is not None:
            bad &= ~torch.isin(flat, truth.native)  # -1 may pad
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


def _largest(inputs: Mapping[str, Any]) -> float:
    """Return how many ids there may be: as many as the longest axis of a floating input has places."""
    floats = [x for x in inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return max((size for x in floats for size in x.shape), default=math.inf)


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
