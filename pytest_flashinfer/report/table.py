"""The table at the end of a run: one per definition, best solution first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flashinfer.report.results import Standing

HEAD = ("solution", "author", "passed", "latency", "speedup (min..max)", "roofline", "bound", "failures")
DROPPED_WHEN_NARROW = ("roofline", "author", "bound")
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_LONG = 1000.0  # seconds, above which three digits would need an exponent


def lines(tables: Mapping[str, Sequence[Standing]], width: int) -> Iterator[tuple[str, bool]]:
    """Yield the lines of all tables with whether a line tells of a failure; columns are dropped to fit `width`."""
    for definition, rows in tables.items():
        yield definition, False
        cells = [dict(zip(HEAD, _cells(row), strict=True)) for row in rows]
        columns = _columns(cells, width)
        sizes = {name: max(len(name), *(len(row[name]) for row in cells)) for name in columns}
        yield "  " + "  ".join(name.ljust(sizes[name]) for name in columns).rstrip(), False
        for row, standing in zip(cells, rows, strict=True):
            yield "  " + "  ".join(row[name].ljust(sizes[name]) for name in columns).rstrip(), bool(standing.failures)


def _columns(cells: list[dict[str, str]], width: int) -> list[str]:
    columns = [name for name in HEAD if any(row[name] not in ("", "-") for row in cells)]
    for name in DROPPED_WHEN_NARROW:
        needed = sum(2 + max(len(column), *(len(row[column]) for row in cells)) for column in columns)
        if needed > width and name in columns:
            columns.remove(name)
    return columns


def _cells(row: Standing) -> tuple[str, ...]:
    speedup = row.speedup
    roofline = max(row.rooflines, default=None)
    return (
        row.solution,
        row.author,
        f"{row.passed}/{row.total}",
        duration(row.latency),
        f"{speedup[0]:.2f}x ({speedup[1]:.2f}..{speedup[2]:.2f})" if speedup else "-",
        f"{roofline:.0%}" if roofline is not None else "-",
        f"{row.bound_share:.0%}" if row.bound_share is not None else "-",
        ", ".join(f"{count} {status}" for status, count in sorted(row.failures.items())),
    )


def duration(seconds: float | None) -> str:
    """Return a time with three digits and its unit."""
    if seconds is None:
        return "-"
    rounded = float(f"{seconds:.3g}")  # 999.7 us is 1 ms
    unit, scale = next((pair for pair in _UNITS if rounded >= pair[1]), _UNITS[-1])
    digits = ".3g" if rounded < _LONG else ".0f"
    return f"{rounded / scale:{digits}} {unit}"
