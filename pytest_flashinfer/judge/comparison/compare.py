"""The one comparison: an output buffer against the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison.applicable_settings import in_force
from pytest_flashinfer.judge.comparison.exact import Exact
from pytest_flashinfer.judge.comparison.id_sets import compare_chosen
from pytest_flashinfer.judge.comparison.measure import Values
from pytest_flashinfer.judge.comparison.message import decide, explain
from pytest_flashinfer.judge.comparison.record import Comparison
from pytest_flashinfer.judge.comparison.topk import compare_topk
from pytest_flashinfer.judge.oracle.truth import SAMPLED
from pytest_flashinfer.judge.reference.origin import Unfair
from pytest_flashinfer.judge.sampling.draws import Draws
from pytest_flashinfer.judge.sampling.verdict import compare_samples
from pytest_flashinfer.judge.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch

    from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth


def compare(  # noqa: PLR0913 - all but two have defaults
    actual: torch.Tensor | None,
    truth: OutputTruth,
    tolerance: Tolerance | None = None,
    *,
    equal_nan: bool = False,
    inputs: Mapping[str, Any] | None = None,
    previous: torch.Tensor | None = None,
    draws: dict[str, Draws] | None = None,
    explained: bool = True,
    ranked: bool = False,
    alike: Collection[str] | None = None,
) -> Comparison:
    """Compare one output (storage shape and dtype as declared) with the truth.

    `equal_nan`: the inputs hold NaN or inf, so the result may. `inputs`, `previous`: what a wrong output is tried
    against for a hint. `draws`: where the test of sampled outputs carries its draws from call to call. `explained`: say
    what is wrong, which takes longer than to find it. `ranked`: ids of a top-k have values beside them, in their order.
    `alike`: the inputs that are declared with the output's shape; others have it at some sizes, and give no hint.
    """
    mismatch = _missing(actual, truth) or _layout(actual, truth)
    if mismatch is not None:
        return mismatch
    assert actual is not None
    settings = tolerance or Tolerance()
    own = in_force(settings, truth.name, truth.dtype)
    if truth.replaced is not None and not own.explicit and own.required_matched_ratio is None:
        held = compare_chosen(actual, truth)
        if not held.ok:
            return held
    if not actual.is_floating_point():
        if own.comparison == "topk":
            return compare_topk(actual, truth, inputs or {}, ranked=ranked)
        if truth.how == SAMPLED or own.comparison == "sampling":
            return compare_samples(actual, truth, inputs or {}, _draws_of(truth.name, draws))
    if own.comparison == "exact" or not floats.is_float(truth.dtype):
        judge: Exact | Values = Exact(actual, truth, own, strict=settings.explicit)
    else:
        judge = Values(actual, truth, own, equal_nan=bool(own.equal_nan) or (equal_nan and own.equal_nan is None))
    tried = {name: value for name, value in (inputs or {}).items() if alike is None or name in alike}
    return _decided(judge, tried, previous, explained=explained)


def _decided(
    judge: Exact | Values, inputs: Mapping[str, Any], previous: torch.Tensor | None, *, explained: bool
) -> Comparison:
    tally = judge.run()
    found = decide(judge, tally)
    return found if found.ok or not explained else explain(judge, tally, inputs, previous)


def _draws_of(name: str, draws: dict[str, Draws] | None) -> Draws | None:
    return None if draws is None else draws.setdefault(name, Draws())


def refuse_unfair(truth: Truth, tolerance: Tolerance) -> None:
    """Raise Unfair where the reference has NaN, or an infinity that is not tolerated: no kernel could be right there.

    Of a truth that is found in parts the first one is looked at.
    """
    truth = truth if truth.parts is None else truth.parts.first
    for output in truth.outputs.values():
        if output.native is not None and output.native.is_floating_point():
            found = compare(output.native, output, tolerance, equal_nan=truth.nan_inputs)
            if found.problem in ("reference", "nonfinite"):
                raise Unfair(found.summary)


def _missing(actual: torch.Tensor | None, truth: OutputTruth) -> Comparison | None:
    if actual is not None and truth.native is not None:
        return None
    if actual is None and truth.native is None:
        return Comparison(truth.name, ok=True, lines=(f"{truth.name}: left out on both sides",))
    side = "missing" if actual is None else "given, but the reference leaves it out"
    return Comparison(truth.name, ok=False, problem="missing", lines=(f"{truth.name}: {side}",))


def _layout(actual: torch.Tensor | None, truth: OutputTruth) -> Comparison | None:
    native = truth.native
    assert actual is not None
    assert native is not None
    if actual.dtype != native.dtype:
        line = f"{truth.name}: dtype {floats.name_of(actual.dtype)} instead of {floats.name_of(native.dtype)}"
        return Comparison(truth.name, ok=False, problem="dtype", lines=(line,))
    if actual.shape != native.shape:
        line = f"{truth.name}: shape {list(actual.shape)} instead of {list(native.shape)}"
        return Comparison(truth.name, ok=False, problem="shape", lines=(line,))
    return None
