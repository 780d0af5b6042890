"""How much faster 2 and 4 cards are than one: pytest-xdist with a process for each card. No arguments.

Each count of cards runs the same evaluations. Where there are fewer cards the row says so; on the CPU a process takes
the place of a card, which says what spreading costs and nothing of a card.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import tables
import trees

GOALS = {1: "-", 2: "1.9", 4: "3.7"}
CARDS = 0 if tables.device().startswith("CPU") else len(tables.device().split(", "))
SHAPE = (8, 3, 48) if CARDS else (4, 2, 4)


def main() -> None:
    """Measure and print."""
    places = CARDS or len(os.sched_getaffinity(0))
    rows: list[tuple[str, ...]] = []
    base = None
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        trees.write(root, *SHAPE, hidden=4096 if CARDS else 64)
        for count, goal in GOALS.items():
            if count > places:
                rows.append((str(count), f"not measured: there are {places}", "-", goal))
                continue
            spread = ("-n", str(count), "--dist=loadfile") if count > 1 else ()
            options = ("--fib-solutions=solutions", "--fib-scope=full", "-q", "-k", "test_correct")
            seconds = tables.checked([*tables.PYTEST, *options, *spread], root).wall
            base = base or seconds
            rows.append((str(count), f"{seconds:.1f}", f"{base / seconds:.2f}", goal))
    tables.show(f"{tables.device()}; {tables.machine()}", ("cards", "seconds", "times as fast", "goal"), rows)


if __name__ == "__main__":
    main()
