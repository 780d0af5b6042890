"""Whole runs of the plugin over the shipped solutions: what two names of one kernel differ by, and what cards add.

A/A: every solution is submitted twice, under two names; the reference is timed beside them. Above 5 us a pair may
differ by 2 %, below by one step of the clock (32 ns) more. Throughput: the same job, all checks of all solutions, by
one process and card, then by several; each number of cards builds into a cache of its own, so that none finds the
kernels that another has compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TWIN = "__twin"
STEP, SHARE, SMALL = 32e-9, 0.02, 5e-6
PLUGIN = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]


def twins(folder: Path) -> None:
    """Copy every shipped solution into `folder` under two names."""
    for path in sorted((ROOT / "solutions").rglob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or "definition" not in document:
            continue
        for suffix in ("", TWIN):
            target = folder / path.relative_to(ROOT / "solutions").with_stem(path.stem + suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(document | {"name": document["name"] + suffix}), encoding="utf-8")


def a_a(device: str, keyword: str) -> None:
    """Run, and print the pairs: each workload's two medians, and who differs by more than is allowed."""
    with tempfile.TemporaryDirectory() as scratch:
        twins(Path(scratch) / "solutions")
        out = Path(scratch) / "run.json"
        options = [f"--fib-solutions={scratch}/solutions", f"--fib-device={device}", f"--benchmark-json={out}"]
        wanted = f"test_speed and ({keyword})" if keyword else "test_speed"
        done = subprocess.run([*PLUGIN, "-k", wanted, *options], cwd=ROOT, capture_output=True, text=True, check=False)
        if not out.exists():
            print(done.stdout[-4000:], done.stderr[-2000:])
            return
        document = json.loads(out.read_text(encoding="utf-8"))
    card = document["machine_info"].get("flashinfer", {}).get("card", "?")
    print(f"\nA/A of shipped solutions, each under two names, on {card} ({done.stdout.strip().splitlines()[-1]})")
    report(pairs(document["benchmarks"]))


def pairs(benchmarks: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return each pair's name and its medians in seconds."""
    medians = {each["fullname"]: each["stats"]["median"] for each in benchmarks}
    found = []
    for name, first in medians.items():
        definition, _, item = name.partition("::test_speed[")
        solution, _, workload = item.partition("-")
        second = medians.get(f"{definition}::test_speed[{solution}{TWIN}-{workload}")
        if second is not None:
            found.append((f"{solution} {workload.rstrip(']')}", first, second))
    return found


def report(found: list[tuple[str, float, float]]) -> None:
    """Print the worst pairs and how many are within what is allowed."""
    rows = [(abs(a - b) / min(a, b), abs(a - b) <= allowed(min(a, b)), name, a, b) for name, a, b in found if a and b]
    rows.sort(reverse=True)
    for large in (True, False):
        group = [row for row in rows if (min(row[3], row[4]) > SMALL) == large]
        if group:
            differences = [100 * row[0] for row in group]
            words = "above 5 us: at most 2 %" if large else "up to 5 us: at most 2 % and one clock step"
            within = sum(row[1] for row in group)
            middle, most = statistics.median(differences), max(differences)
            print(f"{words}: {within} of {len(group)} pairs; median {middle:.2f} %, largest {most:.2f} %")
    print(f"{'worst pairs':60}{'first us':>10}{'second us':>10}{'apart %':>9}")
    for share, within, name, a, b in rows[:12]:
        print(f"{name:60}{a * 1e6:10.2f}{b * 1e6:10.2f}{100 * share:9.2f}{'' if within else '  too far'}")


def allowed(seconds: float) -> float:
    """Return by how many seconds two measurements of one kernel may differ."""
    return SHARE * seconds + (0.0 if seconds > SMALL else STEP)


def throughput(counts: list[int], keyword: str) -> None:
    """Run the whole job on so many cards each, and print how much faster the more are."""
    print("\nthe whole job by number of cards (every check of every shipped solution, nothing compiled before)")
    alone = None
    for count in counts:
        scratch = tempfile.mkdtemp()
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        cards = listed.split(",") if listed else [str(number) for number in range(count)]
        environ = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(cards[:count]), "XDG_CACHE_HOME": scratch}
        options = ["--fib-solutions=solutions", "--fib-device=cuda", f"--benchmark-json={scratch}/run.json"]
        options += ["-n", str(count)] + (["-k", keyword] if keyword else [])
        start = time.perf_counter()
        done = subprocess.run([*PLUGIN, *options], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        shutil.rmtree(scratch, ignore_errors=True)
        alone = seconds if alone is None else alone
        print(f"{count} cards: {seconds:7.1f} s, {alone / seconds:.2f}x  ({done.stdout.strip().splitlines()[-1]})")
