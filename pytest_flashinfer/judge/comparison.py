"""The record that one comparison leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Problem = Literal["", "shape", "dtype", "values", "nonfinite", "reference", "missing"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result for one output.

    `problem`: what kind of failure; "reference" where only the reference is to blame (it is NaN or inf there). `n_bad`
    elements of `n_total` miss; `worst` is the index of the one that `actual`, `expected` and `bound` describe. `share`
    is the largest part of the bound that any element spends (1: all of it). Errors are over the finite elements.
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

    @property
    def summary(self) -> str:
        """One line."""
        return self.lines[0] if self.lines else f"{self.output}: {'ok' if self.ok else self.problem}"

    @property
    def text(self) -> str:
        """At most ten lines."""
        return "\n".join(self.lines[:10])
