"""How far honest results spread around the truth: the noise runs of one case, and the bound that follows from them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.inputs.dtypes import IDS, torch_dtype
from pytest_flashinfer.judge.comparison import id_sets
from pytest_flashinfer.judge.floats import canonical, is_float
from pytest_flashinfer.judge.oracle import bound, integers
from pytest_flashinfer.judge.oracle.noise import Noise
from pytest_flashinfer.judge.oracle.noise_rng import Dice
from pytest_flashinfer.judge.oracle.wide import LiftError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_flashinfer.judge.oracle.lift import NoisePlan
    from pytest_flashinfer.judge.reference.call import Reference, Results
    from pytest_flashinfer.judge.tolerance import Operands

_PATIENCE = 20.0  # seconds, after which those runs have to do that were done
_CLOSER, _STRONG = 32, 8.0  # more runs, and how much stronger they are: each swaps what is near for two times in five


def _shake(result: torch.Tensor | None, dice: Dice, unit: float) -> None:
    """Make floats larger or smaller by `unit` of them, in place."""
    if result is not None and result.is_floating_point():
        result.addcmul_(result.nan_to_num(posinf=0.0, neginf=0.0), dice.draw(result).sign_(), value=unit)


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
    plan: NoisePlan
    wide: Results
    native: Results
    operands: Operands
    dtype: torch.dtype
    runs: int = 0
    squares: dict[str, torch.Tensor] = field(default_factory=dict)
    unsure: dict[str, torch.Tensor] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)  # ids of a row, at most
    held: dict[str, torch.Tensor] = field(default_factory=dict)  # which ids of a row all runs have
    reach: dict[str, torch.Tensor] = field(default_factory=dict)  # how far integers of any run are from the native ones
    moved: dict[str, torch.Tensor] = field(default_factory=dict)  # squared, how far floats go where integers change
    notes: list[str] = field(default_factory=list)

    def measure(self, runs: int) -> None:
        """Do `runs` noise runs and collect squared deviations (floats) and changed values (others)."""
        unit = self._unit
        for name, value in self.wide.items():
            if value is not None and not is_float(self.dtype_of(name)):
                self._await_wholes(name, value)
        self._follow(self.native, self._collect_wholes(self.native, self.wide))
        dice = self._dice(1)
        once = self.plan.low is not None and self._working and not self.plan.decides and self._short()
        for number in range(runs):
            if once:  # the float32 roundings of all runs are in the first
                unit = math.sqrt(runs) * bound.FLOAT32_UNIT if number == 0 else 0.0
            mode = Noise(self.dtype, self.plan, dice, unit, operands=self._working, number=number)
            disturbed = self._disturbed(mode)
            if disturbed is not None:
                self.runs += 1
                changed = self._collect_wholes(disturbed, self.wide)
                self._collect(disturbed)
                self._follow(disturbed, changed)

    def _await_wholes(self, name: str, value: torch.Tensor) -> None:
        """Note what the float64 run has for an output of integers, and what is to be known of them."""
        self.unsure[name] = torch.zeros_like(value, dtype=torch.bool)
        native = self.native[name]
        if native is None:
            return
        if self.plan.selects and id_sets.countable(native):
            self.replaced[name] = 0
            self.held[name] = id_sets.held(native, value)
        elif not self.plan.selects and integers.countable(native.dtype, self.dtype_of(name)):
            self.reach[name] = integers.apart(native, value)

    def look_closely(self) -> None:
        """Do more runs, to see each integer that an honest kernel's rounding may change.

        Where values are ordered they are stronger, and only ids count: many a quantised value lies as near to the next.
        """
        strength = _STRONG if self.plan.selects else 1.0
        names = [name for name in self.unsure if not self.plan.selects or self._ids(name)]
        dice, unit = self._dice(2), strength * self._unit
        end = time.perf_counter() + _PATIENCE
        for number in range(2, 2 + 2 * _CLOSER, 2):  # of these each disturbs operands, at random
            mode = Noise(self.dtype, self.plan, dice, unit, operands=self._working, number=number, strength=strength)
            disturbed = self._disturbed(mode)
            if disturbed is not None:
                self._follow(disturbed, self._collect_wholes(disturbed, self.wide, names, count=False))
            if time.perf_counter() > end:
                break

    def _ids(self, name: str) -> bool:
        return torch_dtype(canonical(self.dtype_of(name))) in IDS

    def dtype_of(self, name: str) -> str:
        """Return the declared dtype of an output."""
        return self.run.outputs[name].dtype

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
            if self.plan.decay:  # kernels in chunks multiply also what has not decayed yet by a difference of such sums
                for result in disturbed.values():
                    _shake(result, mode.dice, self._unit * self.plan.decay)
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
            if name not in self.unsure:
                square = self._square(value, wide)
                self.squares[name] = self.squares[name] + square if name in self.squares else square

    def _square(self, value: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        far = self._far
        apart = torch.nan_to_num(value.to(self.dtype) - wide, nan=far, posinf=far, neginf=far).clamp_(-far, far)
        return apart.square_().masked_fill_(~wide.isfinite(), 0.0)

    def _collect_wholes(
        self, values: Results, others: Results, names: Collection[str] | None = None, *, count: bool = True
    ) -> dict[int, torch.Tensor]:
        """Note where integers of one run are others than those of another run, and `count` the ids that are.

        Returns, per length of the leading axis, the rows in which some are.
        """
        changed: dict[int, torch.Tensor] = {}
        for name in self.unsure if names is None else names:
            value, other = values[name], others[name]
            if value is None or other is None:
                continue
            mask = value != other
            self.unsure[name] |= mask
            native = self.native[name]
            if name in self.reach and native is not None:
                self.reach[name] = torch.maximum(self.reach[name], integers.apart(native, value))
            if mask.ndim and self.plan.selects:
                _join_rows(changed, mask)
            if name in self.replaced:
                assert native is not None
                self.held[name] &= id_sets.held(native, value)
                if count:
                    self.replaced[name] = max(self.replaced[name], int(id_sets.replaced(value, other).max()))
        return changed

    def _follow(self, values: Results, changed: Mapping[int, torch.Tensor]) -> None:
        """Note how far floats go in rows in which integers change: what goes with another id is another value."""
        for name, wide in self.wide.items():
            value = values[name]
            if name in self.unsure or wide is None or value is None or not wide.ndim:
                continue
            rows_here = changed.get(wide.shape[0])
            if rows_here is not None and bool(rows_here.any()):
                square = self._square(value, wide) * rows_here.view(-1, *[1] * (wide.ndim - 1))
                self.moved[name] = torch.maximum(self.moved[name], square) if name in self.moved else square

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
                _join_rows(found, mask)
        return found


def _join_rows(found: dict[int, torch.Tensor], mask: torch.Tensor) -> None:
    """Add the rows of a mask in which something is true, per length of the leading axis."""
    row = mask.unsqueeze(-1).flatten(1).any(dim=1)  # also of no rows
    found[mask.shape[0]] = found[mask.shape[0]] | row if mask.shape[0] in found else row
