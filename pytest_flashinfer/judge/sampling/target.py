"""The distribution that a sampling reference draws from, read where it calls `torch.multinomial`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.packing import listed, widest
from pytest_flashinfer.judge.sampling.capture import Capture, Draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flashinfer.judge.reference.call import Reference, Results

_DOUBT = 2.0**-20  # relative change of the inputs under which a token at the edge of the support may come or go
_DOUBTED = 2  # runs with changed inputs
_UNLIKE = 2.0**-10  # relative difference of weights that sums in another order do not make
_NO_ID = -1  # in columns that a row has no id for
# Inputs that decide what is drawn; a `denoised` one, or a `uniformity`, does not.
_GIVEN = re.compile(r"(^|_)(rand|philox|(seed|rng|uniform|gumbel|noise|generator)s?\d*(_|$))")


@dataclass(frozen=True, slots=True)
class Target:
    """What an output is drawn from: probabilities [rows, n] (float32), and which ids are in the support (bool).

    `times`: how many elements of the output, one after the other, are drawn from each row; none of them twice where
    they are `distinct`. `ids` [rows, n] of the columns, where these are not the ids themselves; no two of a row that
    have mass are the same. `seeded`: draws of the same contents may be the same, for an input decides them, or the
    reference seeds a generator.
    """

    probabilities: torch.Tensor
    support: torch.Tensor
    times: int = 1
    distinct: bool = False
    ids: torch.Tensor | None = None
    seeded: bool = False


def targets(run: Reference, outputs: Sequence[str]) -> dict[str, Target]:
    """Return what the outputs are drawn from, by name.

    The support includes ids that come in when the inputs change by a rounding, and those that are as likely as the
    least likely one that is in: which of equals are kept is for each sampler to say. Outputs that are not drawn by
    `torch.multinomial` are not in the result. Raises `InvalidReferenceError` where the reference raises.
    """
    first, second = _captured(run, 0), _captured(run, 1)
    found = {}
    for name in outputs:
        one = _assign(run, name, first, second)
        if one is not None:
            found[name] = replace(one, seeded=any(map(decides_draws, run.inputs)))
    for number in range(_DOUBTED if found else 0):
        changed = replace(run, inputs=_shaken(run, number), seed=run.seed + 1 + number)
        pair = _captured(changed, 0), _captured(changed, 1)
        seeded = bool(set(pair[0][1].states) & set(first[1].states))  # whatever the generators were seeded with before
        for name, known in found.items():
            other = _assign(changed, name, *pair)
            inside = other.support if other is not None and _same_ids(other, known) else known.support
            found[name] = replace(known, support=known.support | inside, seeded=known.seeded or seeded)
    likely = {name: replace(each, support=each.support | _as_likely(run, each.support)) for name, each in found.items()}
    return {name: _merged(each) for name, each in likely.items()}


def decides_draws(name: str) -> bool:
    """Say whether an input of that name decides what is drawn."""
    return _GIVEN.search(name) is not None


def _as_likely(run: Reference, support: torch.Tensor) -> torch.Tensor:
    """Return the ids [rows, n] whose value, in the input that has one for each, is the least of the support's.

    Where values are logits, of which some are below 0, so is one whose exponential float32 does not tell from that.
    """
    rows = [x for x in run.inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    found = next((x for x in rows if x.shape == support.shape), None)
    if found is None or not support.numel():
        return torch.zeros_like(support)
    values = found.to(torch.float32)
    least = values.masked_fill(~support, torch.inf).amin(dim=1, keepdim=True)
    if bool((values < 0).any()):
        return (values - least).abs() <= _DOUBT * (1 + least.abs())
    return (values == least) & (values > 0)


def _captured(run: Reference, shift: int) -> tuple[Results, Capture]:
    mode = Capture(shift)
    return run.native(mode), mode


def _shaken(run: Reference, number: int) -> dict[str, Any]:
    generator = torch.Generator(run.device).manual_seed(run.seed + number)

    def shake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        wide = value.to(torch.float32)
        factor = torch.empty_like(wide).uniform_(1 - _DOUBT, 1 + _DOUBT, generator=generator)
        return (wide * factor).to(value.dtype)

    change: Callable[[Any], Any] = shake
    return {name: change(value) for name, value in run.inputs.items()}


def _assign(run: Reference, name: str, one: tuple[Results, Capture], two: tuple[Results, Capture]) -> Target | None:
    """Give each element of an output the row it is drawn from, by what it shows in both runs."""
    sources = _sources(one[0][name], two[0][name], one[1].draws, two[1].draws)
    drawn = [each for each in sources if isinstance(each, Draw)]
    if not drawn:
        return None
    distinct = any(draw.row.distinct for draw in drawn)
    times = _times(sources)
    heads = sources[::times]
    places = [each.places if isinstance(each, Draw) else torch.tensor([each]) for each in heads]
    if distinct and any(len(torch.unique(each)) < len(each) for each in places):
        times, heads = 1, sources  # places are not drawn twice, ids may be
        places = [each.places if isinstance(each, Draw) else torch.tensor([each]) for each in heads]
    size = max(widest(run.inputs), *(len(each) for each in places))
    far = any(not 0 <= int(each.min()) <= int(each.max()) < size for each in places)
    if far and not listed(run.inputs):
        return None
    device = drawn[0].row.weights.device
    mass = torch.zeros(len(heads), size, device=device)
    ids = torch.full((len(heads), size), _NO_ID, device=device) if far else None
    for row, (head, own) in enumerate(zip(heads, places, strict=True)):
        weights = head.row.weights.to(torch.float32) if isinstance(head, Draw) else torch.ones(1, device=device)
        columns = torch.arange(len(own), device=device) if far else own.to(device)
        mass[row].scatter_add_(0, columns, weights / weights.sum())
        if ids is not None:
            ids[row, : len(own)] = own
    support = mass > 0
    if distinct:  # more than have weight: the others are any
        weighty = torch.tensor([_weighty(head) for head in heads], device=device)
        support |= (weighty < max(draw.row.times for draw in drawn))[:, None]
    return Target(mass, support, times, distinct, ids)


def _weighty(head: Draw | int) -> int:
    """Count the places of a row that a draw tells from those without weight: torch divides by noise, and may get 0."""
    if not isinstance(head, Draw):
        return 1
    weights = head.row.weights
    least = torch.finfo(weights.dtype).tiny if weights.is_floating_point() else 1
    return int((weights >= least).sum())


def _sources(
    one: torch.Tensor | None, two: torch.Tensor | None, draws: list[Draw], others: list[Draw]
) -> list[Draw | int]:
    """Return which draw each element of an output shows, all of them in order, or the number that it is in both runs.

    Nothing where elements show something else, or where weights follow from what was drawn before.
    """
    if one is None or two is None or len(draws) != len(others) or one.is_floating_point():
        return []
    rows = dict.fromkeys((a.row, b.row) for a, b in zip(draws, others, strict=True))
    if not all(_same_weights(a.weights, b.weights) for a, b in rows):
        return []
    found: list[Draw | int] = []
    left = 0
    for a, b in zip(one.flatten().tolist(), two.flatten().tolist(), strict=True):
        if left < len(draws) and a == draws[left].shown and b == others[left].shown:
            found.append(draws[left])
            left += 1
        elif a == b:
            found.append(a)
        else:
            return []
    return found if left == len(draws) else []


def _same_weights(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Compare weights of two runs, which a card may find in another order of sums."""
    return one.shape == two.shape and torch.allclose(one, two, rtol=_UNLIKE, atol=0.0)


def _times(sources: list[Draw | int]) -> int:
    """Return how many elements after the other are always drawn from one row."""
    times = next(each.row.times for each in sources if isinstance(each, Draw))
    if len(sources) % times:
        return 1
    groups = [sources[start : start + times] for start in range(0, len(sources), times)]
    return times if all(_alike(group[0], each) for group in groups for each in group) else 1


def _alike(one: Draw | int, two: Draw | int) -> bool:
    if isinstance(one, Draw) and isinstance(two, Draw):
        return one.row is two.row and one.ids is two.ids
    return one == two


def _same_ids(one: Target, two: Target) -> bool:
    if one.support.shape != two.support.shape or (one.ids is None) != (two.ids is None):
        return False
    return one.ids is None or two.ids is None or torch.equal(one.ids, two.ids)


def _merged(target: Target) -> Target:
    """Have the first of columns with the same id hold what all of them do: a list of candidates may name one twice."""
    if target.ids is None:
        return target
    mass, support = torch.zeros_like(target.probabilities), torch.zeros_like(target.support)
    columns = torch.arange(mass.shape[1], device=mass.device)
    for row, ids in enumerate(target.ids):
        _, number = torch.unique(ids, return_inverse=True)
        first = torch.full_like(columns, mass.shape[1]).scatter_reduce_(0, number, columns, "amin")[number]
        mass[row].scatter_add_(0, first, target.probabilities[row])
        support[row, first[target.support[row]]] = True
    return replace(target, probabilities=mass, support=support)
