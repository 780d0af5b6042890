"""The device clock against Kineto: bias, spread, A/A, and what a measurement costs; then whole runs of the plugin.

Without arguments all sections are printed that the machine can do: `clock` needs a CUDA card, `cards` as many as it
is told to compare, `aa` none (on the CPU it shows that it works, not how the device clock does).

For each kernel and size: five measurements of 20 launches for each of two names of the same callable, taken in turn,
then one torch.profiler session of 50 launches with the same L2 flush. `bias` compares the medians; `CV` is the
spread over the launches of one measurement, the median of ten, beside Kineto's own over its 50; `A/A` the largest
difference between two measurements' medians taken in turn; `cost` the wall time of 20 launches with their reading.
The eager rows are plain torch, six kernels a call: they show whether the host's pace gets into the span, as it does
into Kineto's, which they are not compared with.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import whole_runs

from pytest_flashinfer.worker import cudart
from pytest_flashinfer.worker.clock import Clock, Span, open_clock
from pytest_flashinfer.worker.l2 import L2
from pytest_flashinfer.worker.timing import LAUNCHES, disagreement, warm_up

Call = Callable[[], object]
HIDDEN = 4096
REPEATS = 5
KINETO_LAUNCHES = 50
FIRST = """
import sys, time, torch
sys.path.insert(0, sys.argv[1])
x = torch.ones(4096, device="cuda"); x.mul_(1.0); torch.cuda.synchronize()
from pytest_flashinfer.worker.clock import open_clock
start = time.perf_counter()
clock = open_clock("cuda:0")
opened = time.perf_counter()
for _ in range(20):
    with clock.span():
        x.mul_(1.0)
source = clock.read()[-1].source
print(1e3 * (opened - start), 1e3 * (time.perf_counter() - opened), source)
"""


@triton.jit
def _rmsnorm(x, w, y, h: tl.constexpr, block: tl.constexpr):  # noqa: ANN001, ANN202 - Triton's own types
    row = tl.program_id(0)
    column = tl.arange(0, block)
    value = tl.load(x + row * h + column, mask=column < h, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / h + 1e-6)
    weight = tl.load(w + column, mask=column < h).to(tl.float32)
    tl.store(y + row * h + column, value * scale * weight, mask=column < h)


def rmsnorm(batch: int) -> Call:
    """Return a call of the Triton kernel on `batch` rows of bf16."""
    x = torch.randn(batch, HIDDEN, device="cuda", dtype=torch.bfloat16)
    w, y = torch.randn(HIDDEN, device="cuda", dtype=torch.bfloat16), torch.empty_like(x)
    return lambda: _rmsnorm[(batch,)](x, w, y, HIDDEN, 4096, num_warps=8)


def eager(batch: int) -> Call:
    """Return a call of the same RMSNorm in plain torch."""
    x = torch.randn(batch, HIDDEN, device="cuda", dtype=torch.bfloat16)
    w, y = torch.randn(HIDDEN, device="cuda", dtype=torch.bfloat16), torch.empty_like(x)

    def call() -> None:
        wide = x.float()
        y.copy_(wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * w)

    return call


def gemm(m: int) -> Call:
    """Return a call of cuBLAS on [m, 4096] x [4096, 4096] of fp16."""
    a = torch.randn(m, HIDDEN, device="cuda", dtype=torch.float16)
    b = torch.randn(HIDDEN, HIDDEN, device="cuda", dtype=torch.float16)
    out = torch.empty(m, HIDDEN, device="cuda", dtype=torch.float16)
    return lambda: torch.mm(a, b, out=out)


def timed(clock: Clock, call: Call) -> tuple[list[Span], float]:
    """Return the spans of one measurement and its wall cost in seconds."""
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        with clock.span():
            call()
    spans = clock.read()
    return spans, time.perf_counter() - start


def kineto(call: Call) -> dict[str, float]:
    """Return the median span of `call` and its spread, by torch.profiler with the same flush before each launch."""
    flush = L2(cudart.library()).empty
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(KINETO_LAUNCHES):
            for _ in range(3):  # long enough for the host to enqueue what follows
                flush()
            call()
        torch.cuda.synchronize()
    calls: list[list[tuple[int, int]]] = []
    events = [event for event in profile.profiler.kineto_results.events() if "CUDA" in str(event.device_type())]
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "sweep":
            calls.append([])
        elif calls and event.duration_ns() and "Sync" not in event.name():
            calls[-1].append((event.start_ns(), event.start_ns() + event.duration_ns()))
    spans = [max(end for _, end in own) - min(start for start, _ in own) for own in calls if own]
    return {
        "seconds": statistics.median(spans) * 1e-9,
        "cv": statistics.stdev(spans) / statistics.mean(spans),
        "launches": len(spans),
    }


def row(clock: Clock, call: Call) -> dict[str, Any]:
    """Return the figures of one kernel by the device clock."""
    warm_up(clock, call)
    results = [timed(clock, call) for _ in range(2 * REPEATS)]
    medians = [statistics.median(span.seconds for span in spans) for spans, _ in results]
    spreads = [
        statistics.stdev(span.seconds for span in spans) / statistics.mean(span.seconds for span in spans)
        for spans, _ in results
    ]
    pairs = zip(medians[::2], medians[1::2], strict=True)
    flat = [span for spans, _ in results for span in spans]
    return {
        "seconds": statistics.median(medians),
        "cv": statistics.median(spreads),
        "pair": max(abs(a - b) / min(a, b) for a, b in pairs),
        "host": statistics.median(span.host_seconds for span in flat),
        "events": statistics.median(span.event_seconds or 0.0 for span in flat),
        "cost": statistics.median(cost for _, cost in results),
        "note": " ".join({span.source for span in flat} | ({"LATE"} if any(span.late for span in flat) else set())),
        "disagreement": disagreement(flat),
    }


def clock_table() -> None:
    """Measure and print the table of the clock."""
    command = [sys.executable, "-c", FIRST, str(Path(__file__).resolve().parents[1])]
    firsts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    torch.zeros(1, device="cuda")
    clock = open_clock("cuda:0")
    calls = [(f"rmsnorm h4096 batch {n}", rmsnorm(n)) for n in (1, 64, 1024, 8804)]
    calls += [(f"gemm n4096 k4096 m {m}", gemm(m)) for m in (1, 64, 1024, 8192)]
    calls += [(f"eager rmsnorm batch {n}", eager(n)) for n in (64, 1024)]
    rows = [(name, call, row(clock, call)) for name, call in calls]
    start = time.perf_counter()
    kineto(calls[0][1])
    session = time.perf_counter() - start
    others = [None if name.startswith("eager") else kineto(call) for name, call, _ in rows]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, cold L2")
    print(f"{datetime.now(timezone.utc):%Y-%m-%d}")
    for opened, first, source in firsts:
        print(f"fresh process: open {float(opened):.1f} ms, first 20 launches {float(first):.1f} ms ({source})")
    print(f"torch.profiler: first session {session:.2f} s")
    heads = [("clock us", 9), ("kineto us", 10), ("bias %", 8), ("CV %", 7), ("kineto", 7), ("A/A %", 7)]
    heads += [("events us", 10), ("host us", 9), ("cost ms", 9)]
    print(" " * 26 + "".join(f"{head:>{width}}" for head, width in heads) + "  source")
    for (name, _, found), other in zip(rows, others, strict=True):
        print(line(name, found, other))


def line(name: str, found: dict[str, Any], other: dict[str, float] | None) -> str:
    """Return one row of the table."""
    text = f"{name:26}{found['seconds'] * 1e6:9.2f}"
    if other is None:
        text += f"{'-':>10}{'-':>8}{100 * found['cv']:7.2f}{'-':>7}"
    else:
        bias = found["seconds"] / other["seconds"] - 1
        text += f"{other['seconds'] * 1e6:10.2f}{100 * bias:8.2f}{100 * found['cv']:7.2f}{100 * other['cv']:7.2f}"
    text += f"{100 * found['pair']:7.2f}{found['events'] * 1e6:10.2f}{found['host'] * 1e6:9.1f}"
    short = other is not None and other["launches"] != KINETO_LAUNCHES
    notes = [found["note"], "Kineto lost launches" if short else "", found["disagreement"] or ""]
    return f"{text}{found['cost'] * 1e3:9.2f}  {' '.join(note for note in notes if note)}"


def main() -> None:
    """Print the sections asked for."""
    card = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help="clock, aa, cards; all that the machine can do by default")
    parser.add_argument("--cards", type=int, nargs="+", help="numbers of cards to compare, the first being the measure")
    parser.add_argument("-k", dest="keyword", default="", help="which items the whole runs are of, as pytest has it")
    chosen = parser.parse_args()
    counts = chosen.cards or [count for count in (1, 2, 4, 8) if count <= torch.cuda.device_count()]
    able = [*(["clock"] if card else []), "aa", *(["cards"] if len(counts) > 1 else [])]
    unknown = set(chosen.sections) - {"clock", "aa", "cards"}
    if unknown or (not card and set(chosen.sections) & {"clock", "cards"}):
        parser.error(f"unknown section {min(unknown)!r}" if unknown else "there is no CUDA card here")
    for section in chosen.sections or able:
        if section == "clock":
            clock_table()
        elif section == "aa":
            whole_runs.a_a("cuda" if card else "cpu", chosen.keyword)
        else:
            whole_runs.throughput(counts, chosen.keyword)


if __name__ == "__main__":
    main()
