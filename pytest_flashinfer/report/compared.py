"""Two runs' timings side by side, for people to look at: what holds a change up is decided by the gates of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.report.markdown import cell, rows
from pytest_flashinfer.report.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WORTH_SAYING = 0.05  # of a median
SHOWN = 30


def block(baseline: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]) -> str:
    """Return Markdown about documents of pytest-benchmark against an earlier one; the largest changes first."""
    before = _medians([baseline])
    now = _medians(documents)
    cards = {card for _, card in (*before.values(), *now.values())}
    if not before or not now:
        return ""
    title = "\n### Against the baseline\n\n"
    if len(cards) > 1:
        return f"{title}Not compared: the baseline was timed on another device.\n"
    both = [(name, before[name][0], now[name][0]) for name in now if name in before]
    changed = [each for each in both if abs(each[2] / each[1] - 1) > WORTH_SAYING]
    changed.sort(key=lambda each: (-abs(each[2] / each[1] - 1), each[0]))
    new, gone = len(now.keys() - before.keys()), len(before.keys() - now.keys())
    slower = sum(after > earlier for _, earlier, after in changed)
    head = (
        f"{title}{len(both)} timings compared: {slower} slower, {len(changed) - slower} faster by more than"
        f" {WORTH_SAYING:.0%}; {new} new, {gone} gone.\n"
    )
    if not changed:
        return head
    body = [
        (cell(name), duration(earlier), duration(after), f"{after / earlier - 1:+.0%}")
        for name, earlier, after in changed[:SHOWN]
    ]
    return f"{head}\n{rows(('timing', 'baseline', 'now', 'change'), body)}"


def _medians(documents: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, str]]:
    return {
        str(each["fullname"]): (float(each["stats"]["median"]), str(each.get("extra_info", {}).get("device")))
        for document in documents
        for each in document.get("benchmarks", ())
        if each["stats"]["median"]
    }
