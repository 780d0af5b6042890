"""The oracle's core: a reference and its inputs in, the truth and the bound of every output out."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.floats import canonical, is_float, name_of
from pytest_flashinfer.judge.oracle import bound
from pytest_flashinfer.judge.oracle.conclude import conclude
from pytest_flashinfer.judge.oracle.lift import Lift
from pytest_flashinfer.judge.oracle.spread import Spread, check_shapes
from pytest_flashinfer.judge.oracle.truth import SAMPLED, OutputSpec, OutputTruth, Truth
from pytest_flashinfer.judge.oracle.wide import LiftError
from pytest_flashinfer.judge.reference.call import Reference, Results, Style
from pytest_flashinfer.judge.sampling.certain import draws_nothing
from pytest_flashinfer.judge.sampling.target import targets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pytest_flashinfer.judge.oracle.lift import NoisePlan
    from pytest_flashinfer.judge.tolerance import Operands

_RUNS_COARSE, _RUNS_FINE, _RUNS_DECIDED, _RUNS_NARROW = 4, 3, 3, 1
_RUNS_LONG = 2  # one of each kind that Noise knows
_LONG = 1e10  # elements of all results of a lifted run; a noise run over as many takes a card half a second


def evaluate(  # noqa: PLR0913 - all but three have defaults
    reference: Callable[..., Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, OutputSpec],
    *,
    style: Style = "return",
    seed: int = 0,
    operands: Operands = "working",
    budget: int | None = None,
    sampling: bool = False,
    native: bool = False,
    bounded: bool = True,
    plain: Results | None = None,
    mutated: Collection[str] = (),
    closely: bool = False,
) -> Truth:
    """Run a reference natively, in float64 and with noise; return the truth and a bound per output.

    `inputs`: tensors, numbers or `None` by name, in the order of the parameters. `operands="exact"` gives no credit for
    operands held in 16 bits inside. `budget`: bytes that the wide copies may take. `sampling`: integer outputs are
    drawn at random, where anything is; their distribution is read instead. `native`: run it natively only; with
    `bounded` off no bound is found then. `plain`: what a native run gives, if that is known. `mutated`: inputs that the
    reference may change. `closely`: many more runs, and stronger ones, look for integers that rounding decides.
    Raises `InvalidReferenceError`, and `MutatesInputsError` where it changes others.
    """
    run = Reference(reference, inputs, outputs, style, seed, mutated)
    clock = time.perf_counter()
    plain = run.native() if plain is None else plain
    spent = {"native": time.perf_counter() - clock}
    if sampling and (sampled := _sampled(run, plain, spent)) is not None:
        return sampled
    if native:
        return _native_only(run, plain, "as asked", spent, bounded=bounded)
    wide_dtype, obstacle = _affordable(run, plain, budget)
    if wide_dtype is None:
        return _native_only(run, plain, obstacle, spent)
    return _lifted(run, plain, wide_dtype, operands, spent, closely=closely)


def _lifted(  # noqa: PLR0913 - how to find it
    run: Reference,
    plain: Results,
    wide_dtype: torch.dtype,
    operands: Operands,
    spent: dict[str, float],
    *,
    closely: bool = False,
) -> Truth:
    """Return the truth as a wide run gives it, with bounds from noise; a native one where it cannot be lifted."""
    clock = time.perf_counter()
    lifted = run.widen(wide_dtype)
    working = working_dtype(run)
    mode = Lift(wide_dtype, working if operands == "working" else None)
    mode.plan.narrow = working is not None
    try:
        wide = run.under(mode, lifted)
        check_shapes(wide, plain)
    except LiftError as error:
        return _native_only(run, plain, str(error), spent)
    spent["lifted"] = time.perf_counter() - clock
    noise = Spread(run, lifted, mode.plan, wide, plain, operands, wide_dtype)
    noise.measure(_runs(run, mode.plan, operands))
    if closely:
        noise.look_closely()
    spent["noise"] = time.perf_counter() - clock - spent["lifted"]
    unsure = noise.unsure_rows()
    truths = {name: conclude(noise, name, unsure) for name in run.outputs}
    how = "lifted" if wide_dtype is torch.float64 else "lifted to float32 (memory)"
    notes = tuple(dict.fromkeys(noise.notes))
    return Truth(truths, how, non_finite(run.inputs), notes, spent)


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


def _runs(run: Reference, plan: NoisePlan, operands: Operands) -> int:
    """Decide how many noise runs the bound needs; where each takes long, neighbours must do in place of more runs."""
    fine = any(canonical(spec.dtype) in ("float32", "float64") for spec in run.outputs.values())
    wanted = _RUNS_COARSE if plan.low is not None and operands == "working" else _RUNS_FINE if fine else _RUNS_NARROW
    if plan.decides:
        return max(wanted, _RUNS_DECIDED)
    return min(wanted, _RUNS_LONG) if plan.elements > _LONG else wanted


def non_finite(inputs: Mapping[str, Any]) -> bool:
    """Whether an input holds NaN or inf: its extremes, which pass NaN on, are read in one pass."""
    floats = [x for x in inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
    ends = [end for x in floats for end in torch.aminmax(x if x.itemsize > 1 else x.to(torch.float32))]
    return bool(ends) and not bool(torch.stack([torch.isfinite(end) for end in ends]).all())


def _sampled(run: Reference, native: Results, spent: dict[str, float]) -> Truth | None:
    """Return the truth of a sampling reference: distributions of what is drawn, the plain values of all else.

    `None` where ids are not drawn at all.
    """
    drawn = [name for name, value in native.items() if value is not None and not is_float(run.outputs[name].dtype)]
    found = targets(run, drawn)
    if drawn and not found and draws_nothing(run):
        return None
    plain = _native_only(run, native, SAMPLED, spent)
    outputs = dict(plain.outputs)
    for name in drawn:
        outputs[name] = replace(outputs[name], how=SAMPLED)
    for name, target in found.items():
        outputs[name] = replace(outputs[name], **{each.name: getattr(target, each.name) for each in fields(target)})
    return replace(plain, outputs=outputs, how=SAMPLED)


def _native_only(run: Reference, native: Results, why: str, spent: dict[str, float], *, bounded: bool = True) -> Truth:
    how = why if why == SAMPLED else f"native: {why}"
    truths = {}
    for name, value in native.items():
        dtype = run.outputs[name].dtype
        limit = bound.table(value, dtype) if bounded and value is not None and is_float(dtype) else None
        truths[name] = OutputTruth(name, dtype, value, None, limit, how=how)
    return Truth(truths, how, non_finite(run.inputs), (), spent)
