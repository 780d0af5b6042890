"""What the scripts of this folder share: child processes with their cost, medians with their spread, tables."""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Run:
    """A finished process: seconds by the clock, of CPU, MiB that it held at most, exit status, stdout and stderr."""

    wall: float
    cpu: float
    memory: float
    status: int
    output: str


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a child: this checkout's package, and nothing that changes what pytest does.

    Compiled modules are kept, as Python does unless it is told otherwise; else every run would compile them all again.
    """
    changes = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(changes)}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return kept | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"} | extra


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end; CPU and memory are those of the process, and of what it waited for."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, env=env or environment(), stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode, text)


def checked(command: Sequence[str], cwd: Path, *, codes: Sequence[int] = (0,)) -> Run:
    """Run a command that must end with one of `codes`; ends this script with its output where it does not."""
    done = run(command, cwd)
    if done.status not in codes:
        sys.exit(f"{' '.join(command)}\nended with {done.status}:\n{done.output[-4000:]}")
    return done


def interleaved(commands: Mapping[str, Callable[[], Run]], rounds: int) -> dict[str, list[Run]]:
    """Run all commands in turn, `rounds` times, so that what else the machine does hits all alike."""
    for command in commands.values():
        command()  # files are read once, and compiled
    found: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(command())
    return found


def instructions(command: Sequence[str], cwd: Path) -> float | None:
    """Count a command's instructions, which no load of the machine changes; `None` without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command], cwd)
    counts = [int(each.replace(",", "")) for each in re.findall(r"Collected : ([\d,]+)", done.output)]
    return max(counts) if counts else None  # the largest process: others are what it asked the system


def spread(values: Sequence[float], unit: float = 1.0, digits: int = 1) -> str:
    """Show a median and the range of the middle half, in units of `unit`."""
    scaled = sorted(value / unit for value in values)
    middle = statistics.median(scaled)
    low, _, high = statistics.quantiles(scaled, n=4) if len(scaled) > 1 else (middle, middle, middle)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table under a line that says what it is about."""
    widths = [max(len(str(row[column])) for row in (head, *rows)) for column in range(len(head))]
    print(f"\n{title}\n", flush=True)
    for row in (head, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |")


def machine() -> str:
    """Say what this was measured on: processor, cores, Python and how busy the machine is."""
    model = "unknown processor"
    with Path("/proc/cpuinfo").open() as lines:
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    load = os.getloadavg()[0]
    return (
        f"{model}, {len(os.sched_getaffinity(0))} cores with a load of {load:.1f}, Python {platform.python_version()}"
    )


def device() -> str:
    """Say which device a run takes here: the cards' names, or that it is the CPU."""
    if shutil.which("nvidia-smi") is None:
        return "CPU (no CUDA card here: the numbers say nothing of a card)"
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],  # noqa: S607 - wherever the driver put it
        capture_output=True,
        text=True,
        check=False,
    )
    return ", ".join(found.stdout.split("\n")).strip(", ") or "CPU (no CUDA card here)"
