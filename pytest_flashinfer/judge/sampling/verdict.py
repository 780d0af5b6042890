"""The judge of sampled ids: their support, and whether they are drawn from the reference's distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.inputs.dtypes import IDS, as_numbers
from pytest_flashinfer.judge.comparison.record import Comparison
from pytest_flashinfer.judge.sampling.draws import FALSE_ALARM, Draws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.judge.oracle.truth import OutputTruth

RANGE = (
    "its distribution is not known and only the range of ids is judged: it is read where a reference of the op_type"
    " sampling draws by torch.multinomial, and returns what it draws"
)
TWICE = "drawn without replacement: only that ids are in the support, and none twice, is judged, and no distribution"
_PART = 256  # draws whose ids are looked up at once


def compare_samples(
    actual: torch.Tensor, truth: OutputTruth, inputs: Mapping[str, Any], draws: Draws | None = None
) -> Comparison:
    """Judge sampled ids: each in the support of its row; together, as drawn from the rows' distributions.

    `draws` carries the test over several calls; without it this call alone is tested. Where the inputs decide what is
    drawn (a seed) draws are not independent, and only the support is looked at; so it is, and that none is there twice,
    where rows are drawn from without replacement: in which order is for each sampler to say. Where the reference does
    not say what it draws from (no `torch.multinomial`), ids must be ones that some input has a place for, or lists.
    """
    flat = as_numbers(actual.reshape(-1))
    mass, support = truth.probabilities, truth.support
    if mass is None or support is None:
        bad = _strange(flat, truth, inputs)
        reason = "none that an input has a place for, or lists (what the reference draws from is not known)"
        return _refused(truth, actual, bad, reason) if bool(bad.any()) else _fine(truth, flat, RANGE, RANGE)
    rows = torch.arange(len(flat), device=flat.device) // truth.times
    columns, known = _columns(flat, rows, truth.ids, mass.shape[1])
    bad, reason = ~known | ~support[rows, columns], "not in the support of the reference's distribution"
    likelihood = mass[rows, columns].where(known, 0.0)
    if truth.distinct and not bool(bad.any()):
        bad = _again(flat, truth.times) & (likelihood < 1)
        reason = "drawn from its row before, and the reference draws without replacement"
    if bool(bad.any()):
        return _refused(truth, actual, bad, reason, likelihood)
    if truth.distinct:
        return _fine(truth, flat, TWICE, TWICE)
    if truth.seeded:
        return _fine(truth, flat, "in the support; the inputs decide what is drawn: the distribution is not tested")
    draws = Draws() if draws is None else draws
    draws.add(columns, mass, support, truth.times)
    return _drawn_well(truth, flat, draws)


def _drawn_well(truth: OutputTruth, flat: torch.Tensor, draws: Draws) -> Comparison:
    """Judge all draws so far together."""
    found = draws.look()
    if found is None:
        return _fine(truth, flat, "in the support")
    chance, fault = found
    if chance >= FALSE_ALARM:
        return _fine(truth, flat, f"in the support, distribution ok (chance {chance:.2g} over {draws.total} draws)")
    line = f"{truth.name}: {draws.total} draws {fault}, those of all calls so far: one case by itself may well pass"
    detail = f"chance {chance:.2g} for an honest sampler, {FALSE_ALARM:g} is refused"
    lines = line, detail
    return Comparison(truth.name, ok=False, problem="values", n_total=flat.numel(), how="sampling", lines=lines)


def _strange(flat: torch.Tensor, truth: OutputTruth, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Return which ids there is no reason for: no longest axis of a floating input has the place, no input the value.

    What the reference gave is right, -1 may pad; where that is strange itself, it makes ids of its own: none below 0.
    """
    bad = _unlisted(flat, inputs)
    if truth.native is None or not bool(bad.any()):
        return bad
    native = as_numbers(truth.native.reshape(-1))
    if bool((_unlisted(native, inputs) & (native >= 0)).any()):
        bad &= flat < 0
    return bad & ~torch.isin(flat, native)


def _unlisted(flat: torch.Tensor, inputs: Mapping[str, Any]) -> torch.Tensor:
    given = [x for x in inputs.values() if isinstance(x, torch.Tensor)]
    longest = max((size for x in given if x.is_floating_point() for size in x.shape), default=math.inf)
    bad = (flat < 0) | (flat >= longest)
    for x in given:
        if x.dtype in IDS and bool(bad.any()):
            bad &= ~torch.isin(flat, as_numbers(x).to(flat.device))
    return bad


def _columns(
    flat: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor | None, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the column of each id in its row, and whether it has one."""
    if ids is None:
        known = (flat >= 0) & (flat < size)
        return flat.long().clamp(0, size - 1), known
    columns, known = torch.empty_like(rows), torch.empty_like(rows, dtype=torch.bool)
    ids = as_numbers(ids)
    for start in range(0, len(flat), _PART):
        part = slice(start, start + _PART)
        same = ids[rows[part]] == flat[part, None]
        columns[part], known[part] = same.to(torch.uint8).argmax(dim=1), same.any(dim=1)
    return columns, known


def _again(flat: torch.Tensor, times: int) -> torch.Tensor:
    """Say of each id whether it is among those before it in its group of as many as are drawn from one row."""
    ordered, place = flat.reshape(-1, times).sort(dim=1, stable=True)
    same = torch.zeros_like(ordered, dtype=torch.bool)
    same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(same).scatter_(1, place, same).reshape(-1)


def _fine(truth: OutputTruth, flat: torch.Tensor, note: str, untested: str = "") -> Comparison:
    lines, untested = (f"{truth.name}: ok, {note}",), untested if len(flat) else ""
    return Comparison(truth.name, ok=True, n_total=flat.numel(), how="sampling", lines=lines, untested=untested)


def _refused(
    truth: OutputTruth, actual: torch.Tensor, bad: torch.Tensor, reason: str, likelihood: torch.Tensor | None = None
) -> Comparison:
    first = int(bad.to(torch.uint8).argmax())
    place = tuple(int(each) for each in torch.unravel_index(torch.tensor(first), actual.shape))
    value = int(actual.reshape(-1)[first])
    chance = "" if likelihood is None else f" (probability {float(likelihood[first]):g})"
    where = f"[{', '.join(map(str, place))}]" if place else ""
    lines = (f"{truth.name}{where}: id {value} is {reason}{chance}", f"{int(bad.sum())} of {bad.numel()} draws")
    return Comparison(
        truth.name,
        ok=False,
        problem="values",
        n_bad=int(bad.sum()),
        n_total=bad.numel(),
        worst=place,
        actual=value,
        how="sampling",
        lines=lines,
    )
