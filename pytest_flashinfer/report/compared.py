"""Two runs' timings side by side, for people to look at: what holds a change up is decided by the gates of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.report.baseline import THRESHOLD, compare, counted
from pytest_flashinfer.report.markdown import cell, rows
from pytest_flashinfer.report.numbers import count
from pytest_flashinfer.report.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flashinfer.report.baseline import Baseline

SHOWN = 30


def block(before: Baseline, now: Iterable[Baseline]) -> str:
    """Return Markdown about the timings of a run against earlier ones; the largest changes first.

    The verdicts are those of `--fib-baseline`, at its threshold where nobody states another.
    """
    files = list(now)
    timings = {name: found for each in files for name, found in each.entries.items()}
    if not before.entries or not timings:
        return ""
    title = "\n### Against the baseline\n\n"
    if {each.card for each in files if each.entries} != {before.card}:
        return f"{title}Not compared: the baseline was timed on another device.\n"
    both = {name: compare(before.entries[name], timings[name], THRESHOLD) for name in timings if name in before.entries}
    new, gone = len(timings.keys() - both.keys()), len(before.entries.keys() - both.keys())
    verdicts = counted(each.verdict for each in both.values()) or "none"
    head = f"{title}{count(len(both), 'timing')} compared at {THRESHOLD:.0%}: {verdicts}; {new} new, {gone} gone.\n"
    changed = [(name, each) for name, each in both.items() if each.verdict in ("SLOWER", "FASTER")]
    if not changed:
        return head
    changed.sort(key=lambda pair: (-abs(pair[1].ratio - 1), pair[0]))
    body = [
        (cell(name), each.verdict, duration(each.old.median), duration(each.new.median), f"{each.ratio - 1:+.0%}")
        for name, each in changed[:SHOWN]
    ]
    return f"{head}\n{rows(('timing', 'verdict', 'baseline', 'now', 'change'), body)}"
