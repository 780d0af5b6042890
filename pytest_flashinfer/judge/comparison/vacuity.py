"""Would a wrong answer that costs nothing pass? Then the case proves nothing, and says so with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison.applicable_settings import in_force
from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.measure import spans
from pytest_flashinfer.judge.oracle.truth import SAMPLED, left_open
from pytest_flashinfer.judge.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth

_MOST = 0.5


@dataclass(frozen=True, slots=True)
class Vacuous:
    """A cheap answer that would pass. `reason` is one line with the numbers; a note only where `refused` is false.

    `stated`: by what somebody stated of the output, and not by the bound that was computed.
    """

    output: str
    reason: str
    refused: bool
    stated: bool = False


def probe(
    truth: Truth,
    tolerance: Tolerance | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    previous: Mapping[str, torch.Tensor | None] | None = None,
) -> list[Vacuous]:
    """Try zeros, the mean, a copy of each input and the previous answer against the tolerance in force.

    A case is refused where a cheap answer passes although it differs from the reference's own output, which only a
    loose tolerance explains, or a reference that loses its digits. Where the reference's output is that answer bit for
    bit (zeros for zeros, a copy that is meant to be one), or where it holds no elements, there is only a note.
    `previous`: the answer for other inputs, by output.
    """
    found = []
    for name, output in truth.outputs.items():
        if output.native is None or not output.native.numel() or output.how == SAMPLED:
            continue
        free = left_open(output)
        if free is not None and bool(free.all()):
            continue
        # Of sets of ids two contents may have the same, as where a sequence is shorter than the row.
        own = in_force(tolerance or Tolerance(), name, output.dtype)
        before = None if own.comparison == "topk" else (previous or {}).get(name)
        for candidate, value in _candidates(output, inputs or {}, before):
            if compare(value, output, tolerance, equal_nan=truth.nan_inputs, explained=False).ok:
                found.append(_explain(output, candidate, value, tolerance or Tolerance()))
    return found


def unalike(inputs: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Say whether most elements of each float input differ: then the answer to the others is a wrong one."""
    own = {n: x for n, x in inputs.items() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()}
    differ = [_comparable(x) != _comparable(others[name]) for name, x in own.items()]
    return bool(differ) and all(float(each.float().mean()) > _MOST for each in differ)


def _comparable(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8) if x.dtype is torch.float4_e2m1fn_x2 else x.to(torch.float32)


def leaves_open(part: Truth, rows: slice, tolerance: Tolerance, inputs: Mapping[str, Any]) -> bool:
    """Say whether by the truth about some rows a cheap answer to all of them may pass, where each element counts."""
    cut = {name: x[rows] if isinstance(x, torch.Tensor) and x.ndim else x for name, x in inputs.items()}
    unsure = [each.undecided for each in part.outputs.values() if each.undecided is not None]
    return any(bool(each.all()) for each in unsure) or bool(probe(part, tolerance, inputs=cut))


def _candidates(
    output: OutputTruth, inputs: Mapping[str, Any], previous: torch.Tensor | None
) -> Iterator[tuple[str, torch.Tensor]]:
    native = output.native
    assert native is not None
    yield "zeros", native.new_zeros(()).expand(native.shape)
    if not floats.is_packed(output.dtype):
        mean = _mean(native)
        if mean is not None:
            mean = mean if native.is_floating_point() else mean.round()
            yield "the mean everywhere", mean.to(native.dtype).expand(native.shape)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.shape == native.shape and value.dtype == native.dtype:
            yield f"a copy of the input {name}", value
    if previous is not None and previous.shape == native.shape and previous.dtype == native.dtype:
        yield "the previous answer", previous


def _mean(native: torch.Tensor) -> torch.Tensor | None:
    """Return the mean of the finite elements, 0-d in float64; `None` where there are not even two."""
    flat = native.reshape(-1)
    total, count = (torch.zeros((), dtype=kind, device=native.device) for kind in (torch.float64, torch.int64))
    for part in spans(flat):
        values = flat[part].to(torch.float64)
        finite = torch.isfinite(values)
        total += values.where(finite, 0.0).sum()
        count += finite.sum()
    return total / count if int(count) > 1 else None


def _explain(output: OutputTruth, candidate: str, value: torch.Tensor, tolerance: Tolerance) -> Vacuous:
    native = output.native
    assert native is not None
    name = output.name
    if torch.equal(torch.nan_to_num(_number(value)), torch.nan_to_num(_number(native))):
        return Vacuous(name, f"{name}: {candidate} is the right answer here", refused=False)
    own = in_force(tolerance, name, output.dtype)
    top = float(torch.nan_to_num(native.to(torch.float64), posinf=0.0, neginf=0.0).abs().max())
    if own.explicit:
        limit = f"rtol {own.rtol or 0:g}, atol {own.atol or 0:g}"
    else:
        assert output.allowance is not None or own.cosine is not None or not floats.is_float(output.dtype)
        limit = "the bound" if output.allowance is None else f"the bound (up to {float(output.allowance.max()):.3g})"
    extra = [
        f"{setting} {getattr(own, setting):g}"
        for setting in ("required_matched_ratio", "cosine", "scale")
        if getattr(own, setting) is not None
    ]
    passes = f"with {', '.join([limit, *extra])} {candidate} would pass, max|reference| is {top:.3g}"
    stated = own.explicit or bool(extra)
    if stated:
        reason = f"the tolerance of {name} proves nothing: {passes}; tighten it"
    else:
        reason = f"the reference proves nothing of {name} here: {passes}; take other inputs, or state a tolerance"
    return Vacuous(name, reason, refused=True, stated=stated)


def _number(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor
