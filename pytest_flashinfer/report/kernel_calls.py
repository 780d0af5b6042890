"""What kernels are worth to a model: measured latencies weighed by how often the model calls each kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flashinfer.data.faults import printable
from pytest_flashinfer.report.numbers import times
from pytest_flashinfer.report.results import mean
from pytest_flashinfer.report.table import duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_flashinfer.data.calls import KernelCalls
    from pytest_flashinfer.report.results import Result


@dataclass
class Latency:
    """Seconds that stand for one kernel: geometric means over the workloads on which the reference was timed."""

    reference: float
    authors: dict[str, float] = field(default_factory=dict)  # of each author's best right solution

    @property
    def best(self) -> float:
        """The least of all, the reference among them."""
        return min([self.reference, *self.authors.values()])


def latencies(results: Iterable[Result]) -> dict[str, Latency]:
    """Return the latencies of every definition; a solution counts if nothing of it failed and it ran all workloads."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.definition, []).append(result)
    found = {}
    for definition, group in groups.items():
        reference = {each.workload: each.reference for each in group if each.reference is not None}
        if reference:
            found[definition] = Latency(mean(reference.values()), _authors(group, set(reference)))
    return found


def _authors(group: Sequence[Result], workloads: set[str | None]) -> dict[str, float]:
    wrong = {each.solution for each in group if each.outcome == "failed"}
    timed: dict[tuple[str, str], dict[str | None, float]] = {}
    for each in group:
        if each.latency is not None and each.solution not in wrong:
            timed.setdefault((each.author, each.solution), {})[each.workload] = each.latency
    best: dict[str, float] = {}
    for (author, _), own in timed.items():
        if own.keys() >= workloads:
            latency = mean(own[workload] for workload in workloads)
            best[author] = min(latency, best.get(author, latency))
    return best


@dataclass
class Weighed:
    """The time of one forward pass in the kernels that were measured, in seconds."""

    calls: KernelCalls
    kernels: dict[str, Latency]  # those of the model's kernels that were measured
    unknown: list[str]  # ids that no definition has
    unmeasured: list[str]

    @property
    def reference(self) -> float:
        """With the references."""
        return sum(self.calls.counts[name] * kernel.reference for name, kernel in self.kernels.items())

    @property
    def best(self) -> float:
        """With the fastest of all for each kernel."""
        return sum(self.calls.counts[name] * kernel.best for name, kernel in self.kernels.items())

    def author(self, author: str) -> tuple[float, int]:
        """With an author's kernels, the reference standing in for those that there are not; and how many there are."""
        times = {name: kernel.authors.get(author, kernel.reference) for name, kernel in self.kernels.items()}
        covered = sum(author in kernel.authors for kernel in self.kernels.values())
        return sum(self.calls.counts[name] * time for name, time in times.items()), covered

    @property
    def authors(self) -> list[str]:
        """All authors of right kernels, the one that helps most first."""
        names = {author for kernel in self.kernels.values() for author in kernel.authors}
        return sorted(names, key=lambda name: (self.author(name)[0], name))

    @property
    def next(self) -> tuple[str, float]:
        """The kernel that takes most of the time with the best of all, and its share of that time."""
        shares = {name: self.calls.counts[name] * kernel.best / self.best for name, kernel in self.kernels.items()}
        return max(shares.items(), key=lambda pair: pair[1])


def weigh(calls: KernelCalls, measured: Mapping[str, Latency], definitions: Collection[str]) -> Weighed:
    """Match a record with what was measured; a kernel that is called no times is left out."""
    wanted = [name for name, count in calls.counts.items() if count]
    return Weighed(
        calls,
        {name: measured[name] for name in wanted if name in measured},
        [name for name in wanted if name not in definitions],
        [name for name in wanted if name in definitions and name not in measured],
    )


def lines(records: Sequence[KernelCalls], results: Sequence[Result], definitions: Collection[str]) -> Iterator[str]:
    """Yield the lines of a table for each record."""
    measured = latencies(results)
    for calls in records:
        yield from map(printable, _lines(weigh(calls, measured, definitions)))


def _lines(weighed: Weighed) -> Iterator[str]:
    wanted = sum(1 for count in weighed.calls.counts.values() if count)
    known = len(weighed.kernels)
    yield f"{weighed.calls.model}, {weighed.calls.framework}: {known} of {wanted} kernels measured"
    if weighed.kernels:
        rows = [("kernels of", "covers", "time", "speedup"), _row(weighed, "reference", known, weighed.reference)]
        for author in weighed.authors:
            time, covered = weighed.author(author)
            rows.append(_row(weighed, author, covered, time))
        rows.append(_row(weighed, "best of all", known, weighed.best))
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)).rstrip()
        yield f"  next: {_advice(weighed)}"
    for names, text in ((weighed.unmeasured, "not measured"), (weighed.unknown, "no definition")):
        if names:
            yield f"  {text}: {', '.join(names)}"


def _row(weighed: Weighed, who: str, covered: int, time: float) -> tuple[str, str, str, str]:
    return who, f"{covered}/{len(weighed.kernels)}", duration(time), f"{times(weighed.reference / time)}x"


def _advice(weighed: Weighed) -> str:
    """Amdahl: what one kernel can give is bounded by its share."""
    name, share = weighed.next
    gain = f"at most {1 / (1 - share):.2f}x more" if share < 1 else "all there is"
    return f"{name}, {share:.0%} of the time that is left; making it free gives {gain}"
