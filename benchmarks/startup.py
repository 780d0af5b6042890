"""What the plugin costs where it is installed and not used. Needs it installed; no arguments.

Each command runs with the plugin and without it (`-p no:flashinfer`), in turn. CPU time and, with valgrind, counted
instructions say the same where the machine is busy with other things; milliseconds of the latter are the share of the
whole run's instructions times its CPU time. pytest-benchmark comes with the plugin and is shown beside it.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import tables

ROUNDS = 9
GOAL = 0.015  # seconds
COMMANDS = {"pytest --version": ("--version",), "one-test session": ("-q", ".")}
WITHOUT = {"flashinfer": ("-p", "no:flashinfer"), "pytest-benchmark": ("-p", "no:benchmark")}


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one.py").write_text("def test_one():\n    pass\n")
        rows = [row for label, arguments in COMMANDS.items() for row in measure(label, arguments, folder)]
    head = ("command", "added by", "wall ms", "CPU ms", "instructions", "= ms", "goal ms")
    tables.show(f"Added start-up, {ROUNDS} interleaved runs, {tables.machine()}", head, rows)


def measure(label: str, arguments: tuple[str, ...], folder: Path) -> list[tuple[str, ...]]:
    """Return a row for each plugin that is left out in turn."""
    commands = {"": [*tables.PYTEST, *arguments]}
    commands |= {name: [*tables.PYTEST, *off, *arguments] for name, off in WITHOUT.items()}
    runs = tables.interleaved({key: lambda c=c: tables.checked(c, folder) for key, c in commands.items()}, ROUNDS)
    counted = {key: tables.instructions(command, folder) for key, command in commands.items()}
    rows = []
    for name in WITHOUT:
        pairs = list(zip(runs[""], runs[name], strict=True))
        whole, part = counted[""], counted[name]
        shown = ("no valgrind", "-")
        if whole and part:
            cpu = min(run.cpu for run in runs[""])
            share = (whole - part) / whole
            shown = (f"{(whole - part) / 1e6:.1f} M of {whole / 1e6:.0f} M ({share:.1%})", f"{1e3 * cpu * share:.1f}")
        wall = tables.spread([one.wall - other.wall for one, other in pairs], 1e-3)
        used = tables.spread([one.cpu - other.cpu for one, other in pairs], 1e-3)
        rows.append((label, name, wall, used, *shown, f"{1e3 * GOAL:.0f}" if name == "flashinfer" else "-"))
    base = statistics.median(run.wall for run in runs["flashinfer"])
    rows.append((label, "all without it", f"{1e3 * base:.1f}", "-", "-", "-", "-"))
    return rows


if __name__ == "__main__":
    main()
