"""The record that one comparison leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Problem = Literal["", "shape", "dtype", "values", "nonfinite", "reference", "missing"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result for one output.

    `problem`: what kind of failure; "reference" where only the reference is to blame (it is NaN or inf there). `n_bad`
    elements of `n_total` miss; `worst` is the index of the one that `actual`, `expected` and `bound` describe. `share`
    is the largest part of the bound that any element spends (1: all of it). Errors are over the finite elements.
    `untested`: of an output that passes, what nobody looked at.
    """

    output: str
    ok: bool
    problem: Problem = ""
    n_bad: int = 0
    n_total: int = 0
    worst: tuple[int, ...] | None = None
    actual: Any = None
    expected: Any = None
    bound: float | None = None
    share: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    where: str = ""
    hint: str = ""
    how: str = ""
    lines: tuple[str, ...] = ()
    untested: str = ""

    @property
    def summary(self) -> str:
        """One line."""
        return self.lines[0] if self.lines else f"{self.output}: {'ok' if self.ok else self.problem}"

    @property
    def text(self) -> str:
        """At most ten lines."""
        return "\n".join(self.lines[:10])


def passing(output: str, share: float, notes: Iterable[str]) -> tuple[str, ...]:
    """Return the lines about an output that is right."""
    spent = f"{share:.0%} of the bound spent" if math.isfinite(share) else "within the matched ratio"
    return (f"{output}: ok, {spent}", *notes)


def merged(sofar: Comparison, found: Comparison) -> Comparison:
    """Return the comparison of an output of which some rows, and now others, are right."""
    share = max(sofar.share, found.share)
    return replace(
        found,
        n_bad=sofar.n_bad + found.n_bad,
        n_total=sofar.n_total + found.n_total,
        share=share,
        max_abs=max(sofar.max_abs, found.max_abs),
        max_rel=max(sofar.max_rel, found.max_rel),
        lines=passing(found.output, share, dict.fromkeys((*sofar.lines[1:], *found.lines[1:]))),
    )
