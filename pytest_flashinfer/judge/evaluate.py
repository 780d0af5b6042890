"""The oracle's core: a reference and its inputs in, the truth and the bound of every output out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from . import bound
from .bound import rows
from .floats import canonical, is_float, name_of, overflow_at
from .lift import Lift, LiftError, Plan
from .noise import Noise
from .reference import Reference, Results, Style
from .truth import OutputSpec, OutputTruth, Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Operands = Literal["working", "exact"]
_MARGIN = 1.25  # the reference's own error, where it exceeds the model, is allowed with this margin
_RUNS_COARSE, _RUNS_FINE, _RUNS_NARROW = 4, 3, 1


def evaluate(
    reference: Callable[..., Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, OutputSpec],
    *,
    style: Style = "return",
    seed: int = 0,
    operands: Operands = "working",
    budget: int | None = None,
    seconds: float | None = None,
) -> Truth:
    """Run a reference natively, in float64 and with noise; return the truth and a bound per output.

    `inputs`: tensors, numbers or `None` by name, in the order of the parameters. `operands="exact"` gives no credit for
    operands held in 16 bits inside. `budget`: bytes that the wide copies may take; `seconds`: time for the noise runs.
    Raises `InvalidReferenceError`.
    """
    run = Reference(reference, inputs, outputs, style, seed)
    clock = time.perf_counter()
    native = run.native()
    spent = {"native": time.perf_counter() - clock}
    wide_dtype, obstacle = _affordable(run, native, budget)
    if wide_dtype is None:
        return _native_only(run, native, obstacle, spent)
    clock = time.perf_counter()
    lifted = run.widen(wide_dtype)
    mode = Lift(wide_dtype, working_dtype(run) if operands == "working" else None)
    try:
        wide = run.under(mode, lifted)
        _check_shapes(wide, native)
    except LiftError as error:
        return _native_only(run, native, str(error), spent)
    spent["lifted"] = time.perf_counter() - clock
    noise = _Noisy(run, lifted, mode.plan, wide, native, operands, wide_dtype)
    noise.measure(_runs(run, mode.plan, operands, seconds, spent["lifted"]))
    spent["noise"] = time.perf_counter() - clock - spent["lifted"]
    unsure = noise.unsure_rows()
    truths = {name: noise.judge(name, unsure) for name in outputs}
    how = "lifted" if wide_dtype is torch.float64 else "lifted to float32 (memory)"
    notes = tuple(dict.fromkeys(noise.notes))
    return Truth(truths, how, _non_finite(lifted), notes, spent)


def working_dtype(run: Reference) -> torch.dtype | None:
    """Return the 16-bit dtype in which a kernel for these inputs and outputs may hold operands, if any."""
    names = [name_of(x.dtype) for x in run.inputs.values() if isinstance(x, torch.Tensor)]
    names += [canonical(spec.dtype) for spec in run.outputs.values()]
    if "bfloat16" in names or any(name.startswith("float8") for name in names):
        return torch.bfloat16
    return torch.float16 if "float16" in names else None


def _affordable(run: Reference, native: Results, budget: int | None) -> tuple[torch.dtype | None, str]:
    """Choose the wide dtype that the byte budget allows."""
    if budget is None:
        return torch.float64, ""
    floats = [x for x in run.inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    elements = sum(x.numel() for x in floats) + 3 * sum(x.numel() for x in native.values() if x is not None)
    if 8 * elements <= budget:
        return torch.float64, ""
    short = all(canonical(spec.dtype) not in ("float32", "float64") for spec in run.outputs.values())
    if short and 4 * elements <= budget:
        return torch.float32, ""
    return None, f"float64 copies need {8 * elements >> 20} MiB, the budget is {budget >> 20} MiB"


def _runs(run: Reference, plan: Plan, operands: Operands, seconds: float | None, lifted: float) -> int:
    """Decide how many noise runs the bound needs, and how many the time allows (one costs about twice the lifted run)."""
    fine = any(canonical(spec.dtype) in ("float32", "float64") for spec in run.outputs.values())
    wanted = _RUNS_COARSE if plan.low is not None and operands == "working" else _RUNS_FINE if fine else _RUNS_NARROW
    if seconds is None:
        return wanted
    return max(0, min(wanted, int((seconds - lifted) / (2 * lifted + 1e-9))))


def _check_shapes(wide: Results, native: Results) -> None:
    for name, value in native.items():
        other = wide[name]
        if (value is None) != (other is None) or (
            value is not None and other is not None and value.shape != other.shape
        ):
            raise LiftError(f"the lifted run gives {name} another shape")


def _non_finite(lifted: Mapping[str, Any]) -> bool:
    floats = [x for x in lifted.values() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
    return any(bool((x - x != 0).any()) for x in floats)


def _native_only(run: Reference, native: Results, why: str, spent: dict[str, float]) -> Truth:
    how = f"native: {why}"
    truths = {}
    for name, value in native.items():
        dtype = run.outputs[name].dtype
        limit = bound.table(value, dtype) if value is not None and is_float(dtype) else None
        truths[name] = OutputTruth(name, dtype, value, None, limit, how=how)
    floats = {
        k: x.to(torch.float32) for k, x in run.inputs.items() if isinstance(x, torch.Tensor) and x.is_floating_point()
    }
    return Truth(truths, how, _non_finite(floats), (), spent)


@dataclass(slots=True)
class _Noisy:
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
    notes: list[str] = field(default_factory=list)

    def measure(self, runs: int) -> None:
        """Do `runs` noise runs and collect squared deviations (floats) and changed values (others)."""
        double = any(canonical(spec.dtype) == "float64" for spec in self.run.outputs.values())
        unit = bound.FLOAT64_UNIT if double else bound.FLOAT32_UNIT
        for name, value in self.wide.items():
            if value is not None and not is_float(self.run.outputs[name].dtype):
                native = self.native[name]
                self.unsure[name] = value != native if native is not None else torch.zeros_like(value, dtype=torch.bool)
        generator = torch.Generator(self.run.device).manual_seed(self.run.seed + 1)
        working = self.operands == "working"
        for number in range(runs):
            mode = Noise(self.dtype, self.plan, generator, unit, operands=working, number=number)
            try:
                disturbed = self.run.under(mode, self.lifted)
                _check_shapes(disturbed, self.native)
            except LiftError as error:
                self.notes.append(f"a noise run failed: {error}")
                continue
            self.runs += 1
            self._collect(disturbed)

    def _collect(self, disturbed: Results) -> None:
        for name, wide in self.wide.items():
            value = disturbed[name]
            if wide is None or value is None:
                continue
            if name in self.unsure:
                self.unsure[name] |= value != wide
                continue
            square = torch.nan_to_num(value.to(self.dtype) - wide, nan=0.0, posinf=0.0, neginf=0.0).square()
            self.squares[name] = self.squares[name] + square if name in self.squares else square

    def unsure_rows(self) -> dict[int, torch.Tensor]:
        """Return, per length of the leading axis, the rows in which some integer output is a matter of rounding."""
        found: dict[int, torch.Tensor] = {}
        for mask in self.unsure.values():
            if mask.ndim:
                row = mask.reshape(mask.shape[0], -1).any(dim=1)
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
            return OutputTruth(name, spec.dtype, native, undecided=undecided, exact=True, notes=tuple(notes))
        return self._judge_float(name, spec.dtype, native, wide.to(torch.float64), undecided, notes)

    def _judge_float(
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
