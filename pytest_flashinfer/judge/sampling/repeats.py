"""What rows of a sampler have given before: whether it gives that again as often as chance has it."""

from __future__ import annotations

from collections import Counter

import torch


class Past:
    """Ids that were drawn from rows of `size` ids, by a row's distribution, and all of them together."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self._weights = torch.rand(size, generator=generator)  # rows of one distribution have one sum
        self._given: dict[float, Counter[int]] = {}
        self._by_any: set[int] = set()

    def add(self, ids: list[int], mass: torch.Tensor, parts: list[float]) -> list[float]:
        """Note ids drawn from mass [rows, size]; return the numbers of those rows that had been drawn from before.

        First in a row come ids that the same row has given, the most frequent ones before; then those that any row has.
        Rows that are taken for others by accident are as good as others: the order has no part in what is drawn.
        """
        self._weights = self._weights.to(mass.device)
        known = [self._given.setdefault(each, Counter()) for each in (mass * self._weights).sum(dim=1).tolist()]
        any_row = torch.tensor(sorted(self._by_any), dtype=torch.int64, device=mass.device)
        numbers = [
            self._number(drawn, row, given, row[any_row], part)
            for drawn, row, given, part in zip(ids, mass, known, parts, strict=True)
            if given
        ]
        for drawn, given in zip(ids, known, strict=True):
            given[drawn] += 1
        self._by_any.update(ids)
        return numbers

    def _number(self, drawn: int, row: torch.Tensor, given: Counter[int], by_any: torch.Tensor, part: float) -> float:
        """Return the mass of what comes before, and a part of that of the id, or of all that are as good."""
        ids = sorted(given, key=lambda each: (-given[each], each))
        own = row[torch.tensor([*ids, drawn], device=row.device)].tolist()
        if not own[-1]:
            return part  # as good as another one, see `Draws`
        if drawn in given:
            place = ids.index(drawn)
            return float(sum(own[:place]) + part * own[place])
        held = float(sum(own[:-1]))
        reached = max(held, float(by_any.sum(dtype=torch.float64)))
        return held + part * (reached - held) if drawn in self._by_any else reached + part * (1.0 - reached)
