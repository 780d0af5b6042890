"""The table at the end of a run: one per definition, best solution first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flashinfer.data.faults import printable
from pytest_flashinfer.report.numbers import times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flashinfer.report.results import Standing

HEAD = ("solution", "author", "workloads", "latency", "speedup (min..max)", "roofline", "bound", "failures")
DROPPED_WHEN_NARROW = ("roofline", "author", "bound")
SKIPPED = "skipped"  # stands for failures of a solution of which nothing ran
SHORTEST_NAME = 12  # characters that are left of a solution's name on a terminal too narrow for all of it
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_LONG = 1000.0  # seconds, above which three digits would need an exponent


def lines(tables: Mapping[str, Sequence[Standing]], width: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of all tables with their colour (or ""); columns and ends of names are dropped to fit `width`."""
    for definition, rows in tables.items():
        yield definition, "bold"
        cells = [dict(zip(HEAD, cells_of(row), strict=True)) for row in rows]
        columns = _columns(cells, width)
        _shorten(cells, columns, width)
        sizes = {name: max(len(name), *(len(row[name]) for row in cells)) for name in columns}
        yield "  " + "  ".join(name.ljust(sizes[name]) for name in columns).rstrip(), ""
        for row, standing in zip(cells, rows, strict=True):
            text = "  " + "  ".join(row[name].ljust(sizes[name]) for name in columns).rstrip()
            yield text, "red" if standing.failures else "green" if standing.total else "yellow"
        reasons = Counter(standing.skipped for standing in rows if not standing.total)
        yield from ((f"  {number} skipped: {printable(reason)}", "yellow") for reason, number in reasons.items())


def _needed(cells: Sequence[Mapping[str, str]], columns: Sequence[str]) -> int:
    return sum(2 + max(len(column), *(len(row[column]) for row in cells)) for column in columns)


def _columns(cells: list[dict[str, str]], width: int) -> list[str]:
    columns = [name for name in HEAD if name == HEAD[0] or any(row[name] not in ("", "-") for row in cells)]
    for name in DROPPED_WHEN_NARROW:
        if _needed(cells, columns) > width and name in columns:
            columns.remove(name)
    return columns


def _shorten(cells: list[dict[str, str]], columns: Sequence[str], width: int) -> None:
    """Cut the middle out of long names where a line would not fit: beginnings and ends tell solutions apart."""
    longest = max(len(row[HEAD[0]]) for row in cells)
    room = max(SHORTEST_NAME, longest - max(0, _needed(cells, columns) - width))
    for row in cells:
        name = row[HEAD[0]]
        if len(name) > room:
            row[HEAD[0]] = f"{name[: room - room // 2 - 2]}..{name[len(name) - room // 2 :]}"


def cells_of(row: Standing) -> tuple[str, ...]:
    """Return the texts of a row, in the order of `HEAD`; `-` for what is not known."""
    speedup = row.speedup
    roofline = max(row.rooflines, default=None)
    failures = (f"{count} {status}" for status, count in sorted(row.failures.items()))
    return (
        printable(row.solution),
        printable(row.author),
        f"{sum(row.workloads.values())}/{len(row.workloads)}" if row.workloads else "-",
        duration(row.latency),
        f"{times(speedup[0])}x ({times(speedup[1])}..{times(speedup[2])})" if speedup else "-",
        f"{roofline:.0%}" if roofline is not None else "-",
        f"{row.bound_share:.0%}" if row.bound_share is not None else "-",
        ", ".join(failures) if row.total else SKIPPED,
    )


def duration(seconds: float | None) -> str:
    """Return a time with three digits and its unit."""
    if seconds is None:
        return "-"
    rounded = float(f"{seconds:.3g}")  # 999.7 us is 1 ms
    unit, scale = next((pair for pair in _UNITS if rounded >= pair[1]), _UNITS[-1])
    digits = ".3g" if rounded < _LONG else ".0f"
    return f"{rounded / scale:{digits}} {unit}"
