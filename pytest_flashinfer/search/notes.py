"""What a search says besides its verdict: how far it came, what was compiled, and where a pass stands on little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis.statistics import describe_statistics

from pytest_flashinfer.outputs.properties import Record
from pytest_flashinfer.report.notes import LITTLE
from pytest_flashinfer.search import compiling
from pytest_flashinfer.settings.declarations import SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.inputs.recipe import Layout
    from pytest_flashinfer.search.minimal_case import Outcome
    from pytest_flashinfer.search.pace import Pace
    from pytest_flashinfer.search.unjudged import Tally
    from pytest_flashinfer.worker.outcome import Compilation

FEW = 10  # cases that say little where time was up


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes on one item's search, to which `seconds` were given for cases of these `layouts`."""

    item: pytest.Item
    definition: str
    seconds: float
    layouts: Sequence[Layout]

    def end(self, found: Outcome) -> None:
        """Keep how far the search came; where time ended it, hypothesis does not tell its statistics."""
        for name, value in (("tried", found.tried), ("out_of_time", found.out_of_time)):
            Record(self.item).set(name, value)
        if found.out_of_time and not hasattr(self.item, "hypothesis_statistics"):
            text = f"{self.item.nodeid}:\n\n  - Stopped because time was up, after {found.tried} cases\n"
            self.item.hypothesis_statistics = text  # type: ignore[attr-defined]

    def statistics(self, statistics: Any) -> None:
        """Keep what --hypothesis-show-statistics shows where hypothesis' own plugin looks for it."""
        statistics["nodeid"] = self.item.nodeid
        self.item.hypothesis_statistics = describe_statistics(statistics)  # type: ignore[attr-defined]

    def compiled(self, compiled: Sequence[Compilation], pace: Pace, *, failed: bool) -> None:
        """Say how much of the time went to Triton's compiler: a warning where that was much, and nothing failed."""
        if not compiled:
            return
        Record(self.item).set("compilations", len(compiled))
        Record(self.item).set("compile_s", compiling.spent(compiled, pace.seconds))
        text = compiling.report(compiled, pace.cases, pace.seconds)
        self.item.add_report_section("call", "compilations", text)
        if not failed and compiling.is_wasteful(compiled, pace.cases, pace.seconds):
            self._warn(text)

    def little(self, found: Outcome, tally: Tally) -> None:
        """Warn where a pass stands on little: most cases could not be judged, or time was up after a few.

        The run's end says the latter too, and where time was up before a case of a layout that was asked for.
        """
        text = tally.warning(found.tried)
        if text is None and self.says_little(found):
            text = f"only {found.tried} cases in {self.seconds:g} s: give it more with --fib-seconds"
        if text:
            self._warn(text)
        lacking = [layout for layout in self.layouts if layout not in tally.layouts]
        if lacking or _few(found):
            cases = f"{found.tried} case{'' if found.tried == 1 else 's'} in {self.seconds:g} s"
            none = "".join(f", none of them {layout}" for layout in lacking)
            Record(self.item).set(LITTLE, f"{self.definition}: {self.item.name}: {cases}{none}")

    def says_little(self, found: Outcome) -> bool:
        """Whether time was up after a few cases, though it was the usual time and more: who gives it less knows."""
        return _few(found) and self.seconds >= SECONDS

    def _warn(self, text: str) -> None:
        self.item.warn(pytest.PytestWarning(f"{self.item.name}: {text}"))


def _few(found: Outcome) -> bool:
    return found.out_of_time and found.tried < FEW
