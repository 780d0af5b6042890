"""One call of a solution, and how it is told that it was wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flashinfer.judge.verdict import Verdict, decide

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import torch

    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.errors import WorkerError
    from pytest_flashinfer.worker.guards import Violation
    from pytest_flashinfer.worker.runner import RunResult


@dataclass(frozen=True)
class Call:
    """One call of a solution: what it produced, or the error with which it ended.

    `mutated` are the inputs that the reference writes into as well: looked at when it has answered.
    """

    case: Case
    result: RunResult | None = None
    error: WorkerError | None = None
    mutated: Collection[str] = ()

    @property
    def violations(self) -> Sequence[Violation]:
        """The rules that the call broke; nobody is blamed for doing to an input what the reference does."""
        found = self.result.violations if self.result is not None else []
        return [each for each in found if each.kind != "input" or each.tensor not in self.mutated]

    @property
    def outputs(self) -> Mapping[str, torch.Tensor]:
        """Return the outputs by name, on the device of the inputs.

        Raises Failed where the call ended with an error or broke a rule.
        """
        verdict = decide(error=self.error, violations=self.violations)
        if not verdict.passed:
            raise Failed(verdict, self.case)
        assert self.result is not None
        device = next((x.device for x in self.case.values.values() if hasattr(x, "device")), None)
        return {name: x if device is None else x.to(device) for name, x in self.result.outputs.items()}


class Failed(AssertionError):  # noqa: N818 - what pytest reports
    """A solution is wrong; the text is for its author, the first line stands for all of it.

    `built` says whether it came as far as a call. `seed` is that of the run in which its case came up, if that is an
    earlier one.
    """

    def __init__(self, verdict: Verdict, case: Case | None = None, log: str = "", *, built: bool = True) -> None:
        self.verdict = verdict
        self.case = case
        self.log = log
        self.built = built
        self.hint = ""
        self.seed: int | None = None
        super().__init__(verdict.summary)

    def text(self) -> str:
        """Return the failure in about ten lines."""
        lines = [f"{self.verdict.status}: {self.verdict.summary}"]
        details = self.verdict.details.splitlines()
        lines += [f"  {line}" for line in details if line != self.verdict.summary]
        if self.case is not None:
            lines.append(f"  case: {describe(self.case)}")
            lines += [f"  {line}" for line in _strides(self.case)]
        return "\n".join([*lines, *self.hint.splitlines()])


def describe(case: Case) -> str:
    """Return sizes, scalars and recipe in one line, in the order of the definition."""
    definition, recipe = case.definition, case.recipe.to_json()
    named = [name for name in (*definition.axes, *case.axes) if name in case.axes and name not in definition.const_axes]
    sizes = {name: case.axes[name] for name in named}
    plain = {name: value for name, value in case.values.items() if isinstance(value, (bool, int, float, str))}
    scalars = {**recipe.pop("scalars", {}), **plain}
    given = {name: scalars[name] for name in definition.inputs if name in scalars and name not in sizes}
    parts = (", ".join(f"{name}={value}" for name, value in part.items()) for part in ({**sizes, **given}, recipe))
    return "; ".join([*parts, f"call: {case.variant}"])


def _strides(case: Case) -> Iterator[str]:
    """Yield, where inputs of a layout that somebody asked for are not contiguous, which ones and how."""
    if case.recipe.layout == "contiguous":
        return
    found = [
        f"{name} {list(value.shape)} has strides {list(value.stride())}"
        for name, value in case.values.items()
        if hasattr(value, "is_contiguous") and not value.is_contiguous()
    ]
    if found:
        yield f"strided: {'; '.join(found)}: step through memory by x.stride(), not by the sizes"
