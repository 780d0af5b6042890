"""What the judge needs for a 1 GiB gemm workload, beyond its inputs and two outputs. No arguments.

On a card it is the card's memory in use, sampled while the run goes on; on the CPU the output has 32 MiB, and it is
what the whole machine has in use. Beside it the same for an output of a few rows: processes, their contexts and
libraries take memory whatever they are asked. One output more is the solution's, which returns a tensor of its own.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import tables
import trees

ON_CARD = not tables.device().startswith("CPU")
SIDE = 23170 if ON_CARD else 4096  # of a square output in bf16: 1 GiB, or 32 MiB
INNER = 1024
FEW = 64  # rows
SOURCE = "import torch\n\n\ndef run(a, b):\n    return torch.matmul(a, b.T)\n"
ALLOWED_MIB = 512


def main() -> None:
    """Measure and print."""
    name = f"gemm_n{SIDE}_k{INNER}"
    tensor = {"dtype": "bfloat16", "description": "a matrix"}
    definition = {
        "name": name,
        "op_type": "gemm",
        "description": "C = A B^T",
        "tags": ["status:draft"],
        "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": SIDE}, "K": {"type": "const", "value": INNER}},
        "inputs": {"a": {"shape": ["M", "K"], **tensor}, "b": {"shape": ["N", "K"], **tensor}},
        "outputs": {"c": {"shape": ["M", "N"], **tensor}},
        "reference": SOURCE,
    }
    inputs = {"a": {"type": "random"}, "b": {"type": "random"}}
    lines = [{"uuid": uuid, "axes": {"M": rows}, "inputs": inputs} for uuid, rows in (("few", FEW), ("whole", SIDE))]
    solution = trees.solution(name, "ada", 0) | {"sources": [{"path": "main.py", "content": SOURCE}]}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        trees.put(root / f"definitions/gemm/{name}.json", trees.json.dumps(definition))
        text = "".join(trees.json.dumps({"definition": name, "workload": line}) + "\n" for line in lines)
        trees.put(root / f"workloads/gemm/{name}.jsonl", text)
        trees.put(root / "solutions/ada.json", trees.json.dumps(solution))
        report(peak(root, "few")[0], *peak(root, "whole"))


def peak(root: Path, workload: str) -> tuple[int, tables.Run]:
    """Run one evaluation; returns the most MiB that were in use beyond what was before, and the run."""
    before, most, over = used(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.is_set():
            most = max(most, used())
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    options = ("--fib-solutions=solutions", "--fib-scope=full", "-q", "-k", f"test_correct and {workload}")
    done = tables.checked([*tables.PYTEST, *options], root)
    over.set()
    watcher.join()
    return most - before, done


def report(few: int, whole: int, done: tables.Run) -> None:
    """Print the table."""
    inputs, output = 2 * SIDE * INNER * 2 / 2**20, SIDE * SIDE * 2 / 2**20
    rows = [
        ("inputs and two outputs", f"{inputs + 2 * output:.0f}", "-"),
        ("most in use at once, all processes", str(whole), f"{inputs + 2 * output + ALLOWED_MIB:.0f}"),
        (f"the same with {FEW} rows of output", str(few), "-"),
        ("what the large output adds", str(whole - few), "-"),
        ("largest single process on the host", f"{done.memory:.0f}", "-"),
    ]
    title = f"{tables.device()}: one {output:.0f} MiB output; {tables.machine()}"
    tables.show(title, ("MiB", "measured", "goal"), rows)


def used() -> int:
    """Return the MiB in use: on the card, else by all processes of this machine."""
    if ON_CARD:
        card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"--id={card}"]
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)
    lines = Path("/proc/meminfo").read_text().splitlines()
    facts = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    return (facts["MemTotal"] - facts["MemAvailable"]) // 1024


if __name__ == "__main__":
    main()
