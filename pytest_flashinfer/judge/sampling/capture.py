"""Runs a sampling reference with codes in place of draws: which rows of weights are drawn from, and where it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.oracle.ops import describe
from pytest_flashinfer.judge.oracle.wide import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Weights of one row of one call of multinomial, and how often it is drawn from, with what was drawn put back."""

    weights: torch.Tensor
    times: int
    replaced: bool

    @property
    def distinct(self) -> bool:
        """Whether what one draws is missing for the next."""
        return self.times > 1 and not self.replaced


@dataclass(slots=True, eq=False)
class Draw:
    """One draw from a row: the code returned, and the ids by which codes were replaced."""

    row: Row
    code: int
    ids: torch.Tensor | None = None

    @property
    def shown(self) -> int:
        """What the reference gives where this is drawn."""
        return self.code if self.ids is None else int(self.ids[self.code])

    @property
    def places(self) -> torch.Tensor:
        """The ids that weights are of, int64."""
        many = self.row.weights.shape[0]
        return torch.arange(many, device=self.row.weights.device) if self.ids is None else self.ids[:many].long()


@dataclass(slots=True)
class _Codes:
    """A tensor that holds codes, and the draws they belong to, in order."""

    tensor: torch.Tensor
    draws: list[Draw] = field(default_factory=list)


class Capture(Mode):  # type: ignore[no-untyped-call]
    """Answers multinomial with codes instead of draws, and follows them through gathers and index operations.

    Codes of one row are distinct, up to as many as it has places; another `shift` gives others.
    """

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.draws: list[Draw] = []
        self.states: list[bytes] = []  # of the generators that are drawn from
        self._codes: list[_Codes] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = describe(func).name
        if name == "multinomial":
            self.states.append(_state(args[0].device, (kwargs or {}).get("generator")))
            replaced = args[2] if len(args) > 2 else (kwargs or {}).get("replacement", False)  # noqa: PLR2004
            return self._answer(args[0], args[1], replaced=replaced)
        result = func(*args, **(kwargs or {}))
        held = next((codes for codes in self._codes for arg in _tensors(args) if arg is codes.tensor), None)
        if held is not None and isinstance(result, torch.Tensor) and not result.is_floating_point():
            if name in ("gather", "index", "take", "index_select") and args[0] is not held.tensor:
                _note_ids(held.draws, args[0])
            self._codes.append(_Codes(result, held.draws))
        return result

    def _answer(self, weights: torch.Tensor, times: int, *, replaced: bool) -> torch.Tensor:
        size = weights.shape[-1]
        # One copy for all draws: the reference may write into its weights later.
        rows = [Row(row, times, replaced) for row in weights.detach().clone().reshape(-1, size).unbind()]
        start = len(self.draws) + self.shift
        made = [Draw(row, (start + number) % size) for number, row in enumerate(r for r in rows for _ in range(times))]
        self.draws += made
        codes = torch.tensor([draw.code for draw in made], dtype=torch.int64, device=weights.device)
        codes = codes.reshape(*weights.shape[:-1], times)
        self._codes.append(_Codes(codes, made))
        return codes


def _state(device: torch.device, generator: torch.Generator | None) -> bytes:
    if generator is None and device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    return (generator or torch.default_generator).get_state().numpy().tobytes()


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    flat = [item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else [arg])]
    return [item for item in flat if isinstance(item, torch.Tensor)]


def _note_ids(draws: list[Draw], table: torch.Tensor) -> None:
    """Remember that codes are places in `table`: one row for all draws, or one for as many as each row has."""
    rows = table.reshape(-1, table.shape[-1]).unbind()
    each = len(draws) // len(rows) if len(rows) and len(draws) % len(rows) == 0 else len(draws)
    for place, draw in enumerate(draws):
        draw.ids = rows[place // each]
