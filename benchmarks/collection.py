"""How long a large data set takes to collect, beside plain pytest with as many parametrized items. No arguments.

Plain pytest has a module for each definition, with the same functions, parameters and ids, and one mark for each
solution: what is left is what reading the files costs. The last row asks for one kernel with `-k`, and its clock ends
where the first test begins; `--setup-plan` goes through it without running it, so that torch is not needed.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tables
import trees

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE = (200, 3, 30)
ROUNDS = 5
COLLECT = ("--collect-only", "-q")
NO_TORCH = """
import sys
import time
import pytest

class FirstTest:
    def pytest_runtest_logstart(self):
        print("first test at", time.time())

code = pytest.main(sys.argv[1:], [FirstTest()])
assert "torch" not in sys.modules
sys.exit(code)
"""
ONE = "kernel_0117_h64"
MODULE = """
import pytest

SOLUTIONS = {solutions!r}
WORKLOADS = {workloads!r}
solution = pytest.mark.parametrize(
    "solution", [pytest.param(s, marks=pytest.mark.solution(name=s, author="a", language="python")) for s in SOLUTIONS]
)
workload = pytest.mark.parametrize("workload", WORKLOADS)


def test_schema(): pass


@workload
def test_reference(workload): pass


@workload
@solution
def test_correct(solution, workload): pass


@solution
def test_sizes(solution): pass


@workload
@solution
def test_speed(solution, workload): pass
"""


def plain(root: Path, definitions: int, solutions: int, workloads: int) -> None:
    """Write the modules of the yardstick."""
    trees.put(root / "pytest.ini", "[pytest]\nmarkers = solution(name, author, language)\n")
    for number in range(definitions):
        name = f"kernel_{number:04d}_h64"
        keys = [f"attempt_{each:03d}_{name}" for each in range(solutions)]
        ids = [f"batch_size{size}-{size:08x}" for size in range(1, workloads + 1)]
        trees.put(root / f"norm_{number % 20:02d}/test_{name}.py", MODULE.format(solutions=keys, workloads=ids))


def main() -> None:
    """Measure and print."""
    shape = tuple(map(int, sys.argv[1:4])) or SHAPE
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ours, theirs = root / "dataset", root / "plain"
        trees.write(ours, *shape)
        plain(theirs, *shape)
        kernels = ["-p", "no:cacheprovider", "--fib-solutions=solutions", "--fib-scope=full", "--fib-device=cpu"]
        interpreter = [sys.executable, "-c", NO_TORCH]
        commands = {
            "pytest-flashinfer": ([*interpreter, *kernels, *COLLECT], ours),
            "plain pytest": ([*tables.PYTEST, "-p", "no:flashinfer", *COLLECT], theirs),
            f"-k {ONE}": ([*interpreter, *kernels, "-q", "--setup-plan", "-x", "-k", f"{ONE} and test_schema"], ours),
        }
        calls = {key: lambda c=c, w=w: timed(c, w) for key, (c, w) in commands.items()}
        runs = tables.interleaved(calls, ROUNDS)
    report(shape, runs)


def timed(command: Sequence[str], cwd: Path) -> tables.Run:
    """Run a command; its seconds end where its first test begins, if it has one."""
    start = time.time()
    done = tables.checked(command, cwd)
    began = re.search(r"first test at ([0-9.]+)", done.output)
    return replace(done, wall=float(began[1]) - start) if began else done


def report(shape: tuple[int, ...], runs: dict[str, list[tables.Run]]) -> None:
    """Print a row for each command, with the goals that are said of it."""
    ours, theirs, _ = runs.values()
    ratios = [mine.wall / plain.wall for mine, plain in zip(ours, theirs, strict=True)]
    cpu = [mine.cpu / plain.cpu for mine, plain in zip(ours, theirs, strict=True)]
    goals = {
        0: f"wall {tables.spread(ratios, 1, 2)} x plain, CPU {tables.spread(cpu, 1, 2)} x: at most 1.25; 200 MiB",
        2: "to the first test at most 1.5 s, without torch",
    }
    rows = [
        (
            name,
            (re.findall(r"(\d+)(?:/\d+)? tests? ", found[0].output) or ["1"])[-1],
            tables.spread([run.wall for run in found], 1, 2),
            tables.spread([run.cpu for run in found], 1, 2),
            f"{max(run.memory for run in found):.0f}",
            goals.get(place, ""),
        )
        for place, (name, found) in enumerate(runs.items())
    ]
    title = "Collection of {} definitions x {} solutions x {} workloads".format(*shape)
    head = ("command", "items", "wall s", "CPU s", "peak MiB", "goal")
    tables.show(f"{title}, {ROUNDS} interleaved runs, {tables.machine()}", head, rows)


if __name__ == "__main__":
    main()
