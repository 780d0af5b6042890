"""From the totals of a comparison to its verdict and its words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge import floats
from pytest_flashinfer.judge.comparison import mismatches
from pytest_flashinfer.judge.comparison.applicable_settings import is_integer
from pytest_flashinfer.judge.comparison.exact import Exact
from pytest_flashinfer.judge.comparison.measure import ErrorTally, Values, spans
from pytest_flashinfer.judge.comparison.record import Comparison, Problem, passing
from pytest_flashinfer.worker.unwritten import index_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIFTED = "the reference in float64, and the rounding that an honest kernel for it may do"

_FAR = 1e6  # times a bound, or what is expected: how far it is says nothing more
_TELLING = 8  # wrong elements, all of which are those of something else


def decide(judge: Exact | Values, tally: ErrorTally) -> Comparison:
    """Decide, with the totals; what is wrong with a failure says `explain`, which takes longer."""
    total, truth = judge.actual.numel(), judge.truth
    problem, _ = _decide(judge, tally)
    return Comparison(
        truth.name,
        not problem,
        problem,
        n_bad=tally.bad + tally.special,
        n_total=total,
        share=tally.share,
        max_abs=tally.max_abs,
        max_rel=tally.max_rel,
        how=truth.how,
        lines=() if problem else passing(truth.name, tally.share, truth.notes),
    )


def explain(
    judge: Exact | Values, tally: ErrorTally, inputs: Mapping[str, Any], previous: torch.Tensor | None
) -> Comparison:
    """Return the failure with the worst element, where the misses lie, and what the output looks like."""
    found, (problem, rule) = decide(judge, tally), _decide(judge, tally)
    at = tally.special_at if tally.special and problem in ("nonfinite", "reference") else tally.at
    index = index_of(at, judge.shape) if found.n_total else None
    actual, expected = judge.values(at) if found.n_total else (None, None)
    limit = judge.limit(at) if found.n_total else None
    bad = torch.cat([judge.bad(part) for part in spans(judge.actual)]).reshape(judge.shape)
    place = mismatches.describe(bad)
    hint = _hint(judge, found.n_bad, inputs, previous)
    lines = [_headline(judge, problem, index, actual, expected, limit, at, rule)]
    if problem != "reference":
        lines.append(_counts(judge, tally, found.n_total))
    lines += [line for line in (place, hint, f"bound: {_bound_name(judge)}", *judge.truth.notes) if line]
    return replace(
        found,
        worst=index,
        actual=actual,
        expected=expected,
        bound=limit,
        where=place,
        hint=hint,
        lines=tuple(lines),
    )


def _decide(judge: Exact | Values, tally: ErrorTally) -> tuple[Problem, str]:
    """Return the kind of failure, empty for a pass, and the rule that was broken if not an element's bound."""
    matched = 1 - tally.bad / max(judge.actual.numel(), 1)
    if tally.special:
        return ("reference", "") if tally.special == tally.blamed else ("nonfinite", "")
    own = judge.own
    if own.max_error_cap is not None and tally.max_abs > own.max_error_cap:
        return "values", f"above max_error_cap {own.max_error_cap:g}"
    if own.cosine is not None:
        cosine = _cosine(tally)
        if cosine is None or not cosine >= own.cosine:
            return "values", f"cosine similarity {cosine if cosine is not None else math.nan:.6f} < {own.cosine:g}"
        if not own.explicit and own.scale is None and judge.ratio is None:  # in place of the computed bound
            return "", ""
    if tally.bad and (judge.ratio is None or matched < judge.ratio):
        rule = "" if judge.ratio is None else f"{matched:.4%} of the elements match, {judge.ratio:.4%} required"
        return "values", rule
    return "", ""


def _cosine(tally: ErrorTally) -> float | None:
    dot, left, right = tally.dot
    if left == right == 0:
        return 1.0
    return dot / math.sqrt(left * right) if left and right else None


def _show(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _headline(  # noqa: PLR0913, PLR0917 - the facts of one line
    judge: Exact | Values,
    problem: Problem,
    index: tuple[int, ...] | None,
    actual: Any,
    expected: Any,
    limit: float | None,
    at: int,
    rule: str,
) -> str:
    name = judge.truth.name
    spot = f"{name}[{', '.join(map(str, index))}]" if index else name
    if problem == "reference":
        way = "take other inputs, or accept it by --fib-tolerance=equal_nan=true"
        return f"{spot}: reference is {_special(actual)} here: {way}"
    if problem == "nonfinite":
        return f"{spot}: {_show(actual)} instead of {_show(expected)}"
    said = f"; {rule}" if rule else ""
    if limit == 0:
        return f"{spot}: {_show(actual)} instead of {_show(expected)}{said}"
    error = abs(actual - expected)
    far = [_size(error)]
    if isinstance(judge, Values) and (floats.is_narrow(judge.actual.dtype) or error <= abs(expected)):
        far.append(_distance(judge, at, error))  # steps at 0, or near it, are no measure of what is far from there
    if limit:
        far.append(f"{error / limit:.3g} times the bound {limit:.3g}" if error < _FAR * limit else f"bound {limit:.3g}")
    return f"{spot}: {_show(actual)} instead of {_show(expected)} (error {', '.join(far)}){said}"


def _special(value: Any) -> str:
    return "NaN" if isinstance(value, float) and math.isnan(value) else _show(value)


def _size(error: float) -> str:
    """Return an error to three digits, that of integers in full."""
    return str(error) if isinstance(error, int) else f"{error:.3g}"


def _distance(judge: Values, at: int, error: float) -> str:
    """Express an error in the output's own steps: codes for 8-bit floats, ulps for the others."""
    assert judge.truth.native is not None
    if floats.is_narrow(judge.actual.dtype):
        pair = torch.stack([judge.actual[at], judge.truth.native.reshape(-1)[at]])
        codes = floats.code_order(pair).tolist()
        return f"{abs(codes[0] - codes[1])} codes of {floats.canonical(judge.truth.dtype)}"
    step = floats.spacing(judge.expected[at : at + 1].to(torch.float64), judge.truth.dtype)
    return f"{error / float(step):.3g} ulp of {floats.canonical(judge.truth.dtype)}"


def _counts(judge: Exact | Values, tally: ErrorTally, total: int) -> str:
    bad = tally.bad + tally.special
    line = f"{bad} of {total} elements miss ({100 * bad / total:.3g} %)" if total else "no elements"
    if tally.special:
        line += f", {tally.special} of them not finite on one side"
    if tally.max_abs and judge.truth.dtype != "bool":
        absolute = int(tally.max_abs) if is_integer(judge.truth.dtype) else tally.max_abs
        line += f"; largest error {_size(absolute)} absolute"
        if 0 < tally.max_rel < _FAR:  # where 0 is expected there is no relative one
            line += f", {tally.max_rel:.3g} relative"
    return line


def _bound_name(judge: Exact | Values) -> str:
    own, name = judge.own, judge.truth.name
    if own.explicit and own.comparison != "exact":
        return f"rtol={own.rtol or 0:g} atol={own.atol or 0:g} (set explicitly)"
    if isinstance(judge, Exact):
        advice = judge.strict and is_integer(judge.truth.dtype)
        return "exact" + f" (limits for all outputs leave integers exact, {name}:atol=1 does not)" * advice
    how = f"lifted ({_LIFTED})" if judge.truth.how == "lifted" else judge.truth.how
    return how + (f", times {own.scale:g}" if own.scale is not None else "")


def _hint(judge: Exact | Values, wrong: int, inputs: Mapping[str, Any], previous: torch.Tensor | None) -> str:
    """Say what a wrong output is equal to: zeros, an input, the right answer to the call before.

    A few elements, or one number throughout, are no copy: that is chance. Nor is the answer to the call before where
    most of it is right here as well: the contents may have been nearly the same.
    """
    actual = judge.actual
    if not actual.numel():
        return ""
    if bool((actual == 0).all()) and bool((judge.expected != 0).any()):
        return "the output is all zeros"
    few = wrong < _TELLING
    other = not few and 2 * wrong > actual.numel() and bool((actual != actual[0]).any())
    if previous is not None and other and _same(actual, previous, judge.shape):
        return "the output is the previous call's answer"
    for name, value in () if few else inputs.items():
        if isinstance(value, torch.Tensor) and _same(actual, value, judge.shape):
            return f"the output is a copy of the input {name}"
    return ""


def _same(actual: torch.Tensor, other: torch.Tensor, shape: tuple[int, ...]) -> bool:
    alike = tuple(other.shape) == shape and other.dtype == actual.dtype
    return alike and torch.equal(actual, other.to(actual.device).reshape(-1))
