"""How far honest results spread around the truth: the noise runs of one case, and the bound that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from . import bound, chosen
from .bound import rows
from .dice import Dice
from .floats import canonical, is_float, overflow_at
from .noise import Noise
from .truth import OutputTruth
from .wide import LiftError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .lift import Plan
    from .reference import Reference, Results
    from .tolerance import Operands

_CLOSER, _LOUD = 16, 8.0  # more runs, and how much louder they are: each swaps what is near for two times in five
_MARGIN = 1.25  # the reference's own error, where it exceeds the model, is allowed with this margin


def check_shapes(wide: Results, native: Results) -> None:
    """Raise `LiftError` where a wide run gives other outputs or shapes than the native one."""
    for name, value in native.items():
        other = wide[name]
        if (value is None) != (other is None) or (
            value is not None and other is not None and value.shape != other.shape
        ):
            raise LiftError(f"the lifted run gives {name} another shape")


@dataclass(slots=True)
class Spread:
    """The noise runs of one case, and the bound that follows from them."""

    run: Reference
    lifted: Mapping[str, Any]
    plan: Plan
    wide: Results
    native: Results
    operands: Operands
    dtype: torch.dtype
    runs: int = 0
    squares: dict[str, torch.Tensor] = field(default_factory=dict)
    unsure: dict[str, torch.Tensor] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)  # ids of a row, at most
    notes: list[str] = field(default_factory=list)

    def measure(self, runs: int) -> None:
        """Do `runs` noise runs and collect squared deviations (floats) and changed values (others)."""
        unit = self._unit
        for name, value in self.wide.items():
            if value is not None and not is_float(self.run.outputs[name].dtype):
                self.unsure[name] = torch.zeros_like(value, dtype=torch.bool)
                native = self.native[name]
                if native is not None:
                    if self.plan.selects and chosen.countable(native):
                        self.replaced[name] = 0
                    self._collect_whole(name, value, native)
        dice = self._dice(1)
        once = self.plan.low is not None and self._working and not self.plan.decides and self._short()
        for number in range(runs):
            if once:  # the float32 roundings of all runs are in the first
                unit = math.sqrt(runs) * bound.FLOAT32_UNIT if number == 0 else 0.0
            mode = Noise(self.dtype, self.plan, dice, unit, operands=self._working, number=number)
            disturbed = self._disturbed(mode)
            if disturbed is not None:
                self.runs += 1
                self._collect(disturbed)

    def look_closely(self) -> None:
        """Do more runs, to see each integer that an honest kernel's rounding may change.

        Where values are ordered they are louder, and only ids count: many a quantised value lies as near to the next.
        """
        loud = _LOUD if self.plan.selects else 1.0
        names = [name for name in self.unsure if not self.plan.selects or self._ids(name)]
        dice, unit = self._dice(2), loud * self._unit
        for number in range(2, 2 + 2 * _CLOSER, 2):  # of these each disturbs operands, at random
            mode = Noise(self.dtype, self.plan, dice, unit, operands=self._working, number=number, loud=loud)
            disturbed = self._disturbed(mode) or {}
            for name in names:
                self._collect_whole(name, disturbed.get(name), self.wide[name], count=False)

    def _ids(self, name: str) -> bool:
        return canonical(self.run.outputs[name].dtype) in ("int32", "int64")

    @property
    def _working(self) -> bool:
        return self.operands == "working"

    @property
    def _unit(self) -> float:
        double = any(canonical(spec.dtype) == "float64" for spec in self.run.outputs.values())
        return bound.FLOAT64_UNIT if double else bound.FLOAT32_UNIT

    def _dice(self, number: int) -> Dice:
        keyed = self.plan.selects and self.dtype is torch.float64
        return Dice(self.run.device, self.run.seed + number, keyed=keyed)

    def _disturbed(self, mode: Noise) -> Results | None:
        """Run the reference under noise; `None` where it cannot be."""
        try:
            disturbed = self.run.under(mode, self.lifted)
            check_shapes(disturbed, self.native)
        except LiftError as error:
            self.notes.append(f"a noise run failed: {error}")
            return None
        return disturbed

    def _short(self) -> bool:
        """Say whether all outputs are floats of at most 16 bits, in which float32 roundings hardly show."""
        names = [canonical(spec.dtype) for spec in self.run.outputs.values()]
        return all(is_float(name) and name not in ("float32", "float64") for name in names)

    def _collect(self, disturbed: Results) -> None:
        for name, wide in self.wide.items():
            value = disturbed[name]
            if wide is None or value is None:
                continue
            if name in self.unsure:
                self._collect_whole(name, value, wide)
                continue
            far = self._far
            apart = torch.nan_to_num(value.to(self.dtype) - wide, nan=far, posinf=far, neginf=far).clamp_(-far, far)
            square = apart.square_().masked_fill_(~wide.isfinite(), 0.0)
            self.squares[name] = self.squares[name] + square if name in self.squares else square

    def _collect_whole(
        self, name: str, value: torch.Tensor | None, other: torch.Tensor | None, *, count: bool = True
    ) -> None:
        """Note where an integer of one run is another than that of another run, and `count` the ids that are."""
        if value is None or other is None:
            return
        self.unsure[name] |= value != other
        if count and name in self.replaced:
            self.replaced[name] = max(self.replaced[name], int(chosen.replaced(value, other).max()))

    @property
    def _far(self) -> float:
        """How far a run is followed: where a rounding decides between 0, 10^300 and infinity there is no bound."""
        return 1e100 if self.dtype is torch.float64 else 1e18

    def unsure_rows(self) -> dict[int, torch.Tensor]:
        """Return, per length of the leading axis, the rows in which the order of values is a matter of rounding.

        Where the reference orders nothing, an integer is undecided by itself, as a quantised value is.
        """
        found: dict[int, torch.Tensor] = {}
        for mask in self.unsure.values():
            if mask.ndim and self.plan.selects:
                row = mask.unsqueeze(-1).flatten(1).any(dim=1)  # also of no rows
                found[mask.shape[0]] = found[mask.shape[0]] | row if mask.shape[0] in found else row
        return found

    def judge(self, name: str, unsure: Mapping[int, torch.Tensor]) -> OutputTruth:
        """Put the truth about one output together."""
        spec, native, wide = self.run.outputs[name], self.native[name], self.wide[name]
        if native is None or wide is None:
            return OutputTruth(name, spec.dtype, None)
        rows_here = unsure.get(wide.shape[0]) if wide.ndim else None
        if rows_here is not None and not bool(rows_here.any()):
            rows_here = None
        undecided = None
        if rows_here is not None:
            undecided = rows_here.reshape(-1, *[1] * (wide.ndim - 1)).expand(wide.shape)
        notes = [f"{int(rows_here.sum())} rows undecided: near-ties"] if rows_here is not None else []
        if not is_float(spec.dtype):
            allowed = None
            if not self.plan.selects and bool(self.unsure[name].any()):
                undecided = self.unsure[name]
                notes = [f"{int(undecided.sum())} elements undecided: at a boundary of rounding"]
            elif rows_here is not None and name in self.replaced:
                allowed = chosen.limit(self.replaced[name], native.shape[-1])
                if allowed is not None:
                    notes = [f"{int(rows_here.sum())} rows compared by which ids they hold: near-ties"]
            if name in self.replaced:
                notes.append(f"where scores are equal, {name}:comparison=topk lets ids change places")
            return OutputTruth(
                name, spec.dtype, native, undecided=undecided, replaced=allowed, exact=True, notes=tuple(notes)
            )
        return self._judge_float(name, spec.dtype, native, wide.to(torch.float64), undecided, notes)

    def _judge_float(  # noqa: PLR0913, PLR0917 - the parts of one truth
        self,
        name: str,
        dtype: str,
        native: torch.Tensor,
        wide: torch.Tensor,
        undecided: torch.Tensor | None,
        notes: list[str],
    ) -> OutputTruth:
        squares = self.squares.get(name)
        if squares is None:
            limit = bound.table(wide, dtype)
            notes.append("no noise run was possible: bound by dtype")
        else:
            limit = bound.allowance(wide, squares.to(torch.float64) / self.runs, self.runs, dtype)
        exact = squares is not None and not bool(squares.any())
        given = native.to(torch.float64)
        other = ~torch.isfinite(given) != (~torch.isfinite(wide) | (wide.abs() >= overflow_at(dtype)))
        other |= torch.isnan(given) != torch.isnan(wide)
        disputed = int(other.sum())
        if disputed:
            notes.append(f"{disputed} elements are finite in only one of reference and float64")
            undecided = other if undecided is None else undecided | other
        ratio = torch.nan_to_num((given - wide).abs() / limit, nan=0.0, posinf=0.0, neginf=0.0)
        if undecided is not None:
            ratio = ratio.masked_fill(undecided, 0.0)
        worst = float(ratio.max()) if ratio.numel() else 0.0
        if worst > 1:
            factor = rows(ratio).amax(dim=1, keepdim=True)
            factor = torch.where(factor > 1, _MARGIN * factor, 1.0).expand(rows(ratio).shape).reshape(limit.shape)
            limit = limit * factor
            notes.append(f"the reference's own rounding is {worst:.3g} times the bound: widened where it is")
        return OutputTruth(
            name,
            dtype,
            native,
            wide,
            limit,
            undecided,
            "lifted",
            exact=exact,
            widened=max(1.0, worst),
            disputed=disputed,
            notes=tuple(notes),
        )
