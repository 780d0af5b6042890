"""The one place where a status is decided: from what happened to one of the statuses of the trace format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_flashinfer.judge.raised import more, short, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flashinfer.data.model import Status
    from pytest_flashinfer.judge.comparison.record import Comparison

# kinds of rule violations (worker floor) -> status; what a careless kernel does by mistake is an error of its run, what
# needs intent, or hides when the work is done, is a hack
_VIOLATIONS: Mapping[str, Status] = {
    "shape": "INCORRECT_SHAPE",
    "count": "INCORRECT_SHAPE",
    "dtype": "INCORRECT_DTYPE",
    "unwritten": "INCORRECT_NUMERICAL",
    "guard": "RUNTIME_ERROR",
    "input": "RUNTIME_ERROR",
    "alias": "RUNTIME_ERROR",
    "reused": "RUNTIME_ERROR",
    "device": "RUNTIME_ERROR",
    "object": "RUNTIME_ERROR",
    "late": "REWARD_HACK",
    "left": "REWARD_HACK",
    "clock": "REWARD_HACK",
    "type": "REWARD_HACK",
    "swapped": "REWARD_HACK",
    "policy": "REWARD_HACK",
}
_ERRORS: Mapping[str, Status] = {"build": "COMPILE_ERROR", "timeout": "TIMEOUT"}
_PROBLEMS: Mapping[str, Status] = {
    "shape": "INCORRECT_SHAPE",
    "missing": "INCORRECT_SHAPE",
    "dtype": "INCORRECT_DTYPE",
    "values": "INCORRECT_NUMERICAL",
    "nonfinite": "INCORRECT_NUMERICAL",
    "reference": "INVALID_REFERENCE",
}
# the earlier in this order, the more it explains of what else went wrong
_ORDER: tuple[Status, ...] = (
    "COMPILE_ERROR",
    "TIMEOUT",
    "REWARD_HACK",
    "RUNTIME_ERROR",
    "INCORRECT_SHAPE",
    "INCORRECT_DTYPE",
    "INCORRECT_NUMERICAL",
    "INVALID_REFERENCE",
)


class Failure(Protocol):
    """An error of a worker: `kind` is a short word, `detail` one line."""

    kind: str
    detail: str


class Offence(Protocol):
    """Something a call must not do; `kind` is a short word."""

    @property
    def kind(self) -> str:
        """A short word."""

    @property
    def message(self) -> str:
        """One line."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status, one line, the details, and the largest errors where values were compared (else `None`)."""

    status: Status
    summary: str
    details: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    share: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the status is `PASSED`."""
        return self.status == "PASSED"


def decide(
    comparisons: Sequence[Comparison] = (),
    *,
    error: Failure | None = None,
    violations: Iterable[Offence] = (),
) -> Verdict:
    """Decide about one call.

    `error`: what the solution's worker raised; `violations`: rules that the call broke. The most telling finding gives
    the status, all are in the details. An unknown kind of error or violation counts as `RUNTIME_ERROR`.
    """
    if error is not None:
        said = error.detail.strip().splitlines()
        details = "\n".join(filter(None, [*more(said), _where_raised(error)]))
        return Verdict(_ERRORS.get(error.kind, "RUNTIME_ERROR"), short(_first_line(error.detail)), details)
    found = [(_VIOLATIONS.get(each.kind, "RUNTIME_ERROR"), each.message) for each in violations]
    found += [(_PROBLEMS[each.problem], each.text) for each in comparisons if not each.ok and each.problem]
    found.sort(key=lambda pair: _ORDER.index(pair[0]))
    measured = [each for each in comparisons if each.n_total or each.ok]
    if found:
        status, text = found[0]
        verdict = Verdict(status, _first_line(text), "\n".join(dict.fromkeys(text for _, text in found)))
    else:
        verdict = Verdict("PASSED", "; ".join(each.summary for each in comparisons) or "nothing was compared")
    if verdict.status not in ("PASSED", "INCORRECT_NUMERICAL"):
        return verdict
    return replace(
        verdict,
        max_abs=max((each.max_abs for each in measured), default=None),
        max_rel=max((each.max_rel for each in measured), default=None),
        share=max((each.share for each in measured), default=None),
    )


def _where_raised(error: Failure) -> str:
    """Return the lines of the solution that an exception passed through, where its process told them."""
    return shown(str(getattr(error, "traceback", "")))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no message"
