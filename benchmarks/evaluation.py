"""What people wait for in a run: first verdict, each evaluation, a new solution, a solution that dies. No arguments.

It runs on the card where there is one, else on the CPU, and says which. All is read from the junit reports of whole
pytest runs. The first verdict counts from the command's start, beside one `import torch`; an evaluation is test_correct
and test_speed of one solution on one workload; a new solution is what its first test takes more than a usual one,
process and build included. After a crash, a hang or, on a card, an illegal access, every further item of that solution
dies too: what it takes beyond the timeout is the delay.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import tables
import trees

ON_CARD = not tables.device().startswith("CPU")
SHAPE = (4, 3, 24) if ON_CARD else (1, 3, 4)
HIDDEN = 4096 if ON_CARD else 64
TIMEOUT = 5
OPTIONS = ("--fib-solutions=solutions", "--fib-scope=full", "-q", "-p", "no:cacheprovider", "--fib-examples=1")
DEATHS = {
    "crash": "import os\n\n\ndef run(x, w):\n    os.kill(os.getpid(), 11)\n",
    "hang": "def run(x, w):\n    while True:\n        pass\n",
}
STAMP = """
import pathlib
import time


def pytest_runtest_logreport(report):
    place = pathlib.Path(__file__).parent / "first"
    if report.when == "call" and not place.exists():
        place.write_text(repr(time.time()))
"""
ILLEGAL = """
import torch


def run(x, w):
    return torch.empty(1 << 20, device=x.device)[torch.full((64,), 1 << 40, device=x.device)]
"""


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        trees.write(root, *SHAPE, hidden=HIDDEN)
        shape = "{} definitions x {} solutions x {} workloads".format(*SHAPE)
        for part in (first_verdict, evaluations, deaths):
            title = f"{tables.device()}; {tables.machine()}; {shape}"
            tables.show(title, ("what", "seconds", "goal on an H100"), part(root))


def cases(root: Path, *options: str) -> tuple[tables.Run, list[tuple[str, str, float]]]:
    """Run pytest; returns the run, and name, file and seconds of each test, set-up included."""
    report = root / "junit.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *OPTIONS, f"--junitxml={report}", *options]
    done = tables.checked(command, root, codes=(0, 1))
    found = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    return done, [(each.get("name", ""), each.get("file", ""), float(each.get("time", 0))) for each in found]


def first_verdict(root: Path) -> list[tuple[str, ...]]:
    """Time a run that ends with its first verdict, and the import that nothing can be faster than."""
    once = f"kernel_0000_h{HIDDEN} and attempt_000 and test_correct and batch_size1-"
    place, waited = root / "first", []
    trees.put(root / "conftest.py", STAMP)

    def first() -> tables.Run:
        place.unlink(missing_ok=True)
        start = time.time()
        done = cases(root, "-k", once)[0]
        waited.append(float(place.read_text()) - start)
        return done

    imported = [sys.executable, "-c", "import torch"]
    runs = tables.interleaved({"import": lambda: tables.checked(imported, root), "first": first}, 3)
    verdicts = waited[1:]  # without the one that only warms up
    ratio = [one / other.wall for one, other in zip(verdicts, runs["import"], strict=True)]
    return [
        ("import torch", tables.spread([run.wall for run in runs["import"]], 1, 2), "-"),
        ("a run to its first verdict", tables.spread(verdicts, 1, 2), "-"),
        ("the same as a multiple of one import torch", tables.spread(ratio, 1, 2), "1.3"),
        ("that run to its end", tables.spread([run.wall for run in runs["first"]], 1, 2), "-"),
    ]


def evaluations(root: Path) -> list[tuple[str, ...]]:
    """Time all evaluations of the data set."""
    _, found = cases(root, "-k", "test_correct or test_speed")
    pairs: dict[tuple[str, str], float] = {}
    first: dict[str, float] = {}
    for name, _, seconds in found:
        key = name.partition("[")[2]
        if name.startswith("test_correct"):
            first.setdefault(key.partition("-")[0], seconds)
        pairs[key, ""] = pairs.get((key, ""), 0.0) + seconds
    fresh = list(first.values())[1:]  # the first of all waits for the fork-server
    rest = statistics.median(seconds for name, _, seconds in found if name.startswith("test_correct"))
    return [
        ("an evaluation: correctness and timing", tables.spread(list(pairs.values()), 1, 4), "0.015"),
        ("a new solution's first test, less a usual one", tables.spread([each - rest for each in fresh], 1, 3), "0.6"),
    ]


def deaths(root: Path) -> list[tuple[str, ...]]:
    """Time the item after one whose process died, and what a hang costs beyond its timeout."""
    rows: list[tuple[str, ...]] = []
    sources = DEATHS | ({"illegal access": ILLEGAL} if ON_CARD else {})
    for number, (name, source) in enumerate(sources.items()):
        document = trees.solution("kernel_0000_h" + str(HIDDEN), "zoe", number)
        document["name"] = f"dies_{name.replace(' ', '_')}"
        document["sources"] = [{"path": "main.py", "content": source}]
        place = root / "dying" / f"{name}.json"
        trees.put(place, json.dumps(document))
        chosen = f"test_correct and dies_{name.replace(' ', '_')}"
        _, found = cases(root, f"--fib-solutions={place}", "-k", chosen, f"--fib-timeout={TIMEOUT}", "--maxfail=6")
        dying = [seconds for test, _, seconds in found if "dies_" in test][1:]
        beyond = [each - (TIMEOUT if name == "hang" else 0) for each in dying]
        rows.append((f"an item after a {name}, beyond the timeout", tables.spread(beyond, 1, 3), "0.5"))
    return rows


if __name__ == "__main__":
    main()
