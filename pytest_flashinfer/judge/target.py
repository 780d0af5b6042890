"""The distribution that a sampling reference draws from, read where it calls `torch.multinomial`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from .ops import describe
from .packing import widest
from .wide import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .reference import Reference, Results

_DOUBT = 2.0**-20  # relative change of the inputs under which a token at the edge of the support may come or go
_DOUBTED = 2  # runs with changed inputs
_GIVEN = re.compile(r"seed|philox|rng|(^|_)rand|uniform|gumbel|noise|generator")  # inputs that decide what is drawn


@dataclass(frozen=True, slots=True)
class Target:
    """What an output is drawn from: probabilities [rows, n] (float32), and which ids are in the support (bool).

    `seeded`: draws of the same contents may be the same, for an input decides them, or the reference seeds a generator.
    """

    probabilities: torch.Tensor
    support: torch.Tensor
    seeded: bool = False


@dataclass(slots=True)
class _Draw:
    """One row of one call of multinomial: its weights, the code returned, and the ids by which codes were replaced."""

    weights: torch.Tensor
    code: int
    ids: torch.Tensor | None = None


@dataclass(slots=True)
class _Codes:
    """A tensor that holds codes, and the draws they belong to, in order."""

    tensor: torch.Tensor
    draws: list[_Draw] = field(default_factory=list)


class _Capture(Mode):  # type: ignore[no-untyped-call]
    """Answers multinomial with codes instead of draws, and follows them through gathers and index operations."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.draws: list[_Draw] = []
        self.states: list[bytes] = []  # of the generators that are drawn from
        self._codes: list[_Codes] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = describe(func).name
        if name == "multinomial":
            self.states.append(_state(args[0].device, (kwargs or {}).get("generator")))
            many, again = args[1], args[2] if len(args) > 2 else (kwargs or {}).get("replacement", False)  # noqa: PLR2004
            if many == 1 or again:  # else what one draws is missing for the next
                return self._answer(args[0], many)
        result = func(*args, **(kwargs or {}))
        held = next((codes for codes in self._codes for arg in _tensors(args) if arg is codes.tensor), None)
        if held is not None and isinstance(result, torch.Tensor) and not result.is_floating_point():
            if name in ("gather", "index", "take", "index_select") and args[0] is not held.tensor:
                _note_ids(held.draws, args[0])
            self._codes.append(_Codes(result, held.draws))
        return result

    def _answer(self, weights: torch.Tensor, many: int) -> torch.Tensor:
        rows = weights.reshape(-1, weights.shape[-1])
        made = []
        for row in rows.repeat_interleave(many, dim=0):
            code = (len(self.draws) + self.shift) % rows.shape[1]
            made.append(_Draw(row.detach().clone(), code))
            self.draws.append(made[-1])
        codes = torch.tensor([draw.code for draw in made], dtype=torch.int64, device=weights.device)
        codes = codes.reshape(*weights.shape[:-1], many)
        self._codes.append(_Codes(codes, made))
        return codes


def _state(device: torch.device, generator: torch.Generator | None) -> bytes:
    if generator is None and device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    return (generator or torch.default_generator).get_state().numpy().tobytes()


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    flat = [item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else [arg])]
    return [item for item in flat if isinstance(item, torch.Tensor)]


def _note_ids(draws: list[_Draw], table: torch.Tensor) -> None:
    """Remember that codes are places in `table`: one row for all draws, or one for as many as each row has."""
    rows = table.reshape(-1, table.shape[-1])
    each = len(draws) // len(rows) if len(rows) and len(draws) % len(rows) == 0 else len(draws)
    for place, draw in enumerate(draws):
        draw.ids = rows[place // each]


def targets(run: Reference, outputs: Sequence[str]) -> dict[str, Target]:
    """Return what the outputs are drawn from, by name.

    The support includes ids that come in when the inputs change by a rounding, and those that are as likely as the
    least likely one that is in: which of equals are kept is for each sampler to say. Outputs that are not drawn by
    `torch.multinomial` are not in the result. Raises `InvalidReferenceError` where the reference raises.
    """
    first, second, size = _captured(run, 0), _captured(run, 1), widest(run.inputs)
    found = {}
    for name in outputs:
        one = _assign(first[0][name], second[0][name], first[1].draws, second[1].draws, size)
        if one is not None:
            found[name] = Target(one, one > 0, any(_GIVEN.search(each) for each in run.inputs))
    for number in range(_DOUBTED if found else 0):
        changed = replace(run, inputs=_shaken(run, number), seed=run.seed + 1 + number)
        pair = _captured(changed, 0), _captured(changed, 1)
        seeded = bool(set(pair[0][1].states) & set(first[1].states))  # whatever the generators were seeded with before
        for name, known in found.items():
            other = _assign(pair[0][0][name], pair[1][0][name], pair[0][1].draws, pair[1][1].draws, size)
            inside = other > 0 if other is not None and other.shape == known.support.shape else known.support
            found[name] = replace(known, support=known.support | inside, seeded=known.seeded or seeded)
    return {name: replace(each, support=each.support | _as_likely(run, each.support)) for name, each in found.items()}


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


def _captured(run: Reference, shift: int) -> tuple[Results, _Capture]:
    mode = _Capture(shift)
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


def _assign(
    one: torch.Tensor | None, two: torch.Tensor | None, draws: list[_Draw], others: list[_Draw], size: int
) -> torch.Tensor | None:
    """Give each row of an output the draw whose codes it shows in both runs; a row that shows none is certain.

    `size`: how many ids there are; more than weights, where these are of some candidates.
    """
    if one is None or two is None or not draws or len(draws) != len(others) or one.is_floating_point():
        return None
    size = max(size, *(len(draw.weights) for draw in draws))
    rows = torch.zeros(one.numel(), size, dtype=torch.float32, device=one.device)
    left = 0
    for row, (a, b) in enumerate(zip(one.flatten().tolist(), two.flatten().tolist(), strict=True)):
        if left < len(draws) and a == _shown(draws[left]) and b == _shown(others[left]):
            draw = draws[left]
            weights = draw.weights.to(torch.float32)
            weights = weights / weights.sum()
            ids = draw.ids.long() if draw.ids is not None else torch.arange(size, device=weights.device)
            if not 0 <= int(ids.min()) <= int(ids.max()) < size:
                return None
            rows[row].scatter_(0, ids[: weights.shape[0]], weights)
            left += 1
        elif a == b and 0 <= a < size:
            rows[row, a] = 1.0
        else:
            return None
    return rows if left == len(draws) else None


def _shown(draw: _Draw) -> int:
    return draw.code if draw.ids is None else int(draw.ids[draw.code])
