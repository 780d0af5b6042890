"""Write a folder of trace lines as large runs leave them, to see what a report of them costs.

    python benchmarks/large_traces.py DIR [LINES]

DIR gets `definitions/`, `solutions/` and `traces/`: 25 definitions, 40 solutions of each, 50 workloads, two cards: one
line for each of 100,000 evaluations. A third of the solutions fail on some workloads, with a log. The same numbers come
out every time.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

DEFINITIONS, SOLUTIONS, WORKLOADS = 25, 40, 50
CARDS = ("NVIDIA H100 80GB HBM3", "NVIDIA B200")
FAILURES = ("INCORRECT_NUMERICAL", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT")
SOURCE = "import torch\n\n\n" + "".join(
    f"def stage_{number}(x, weight):\n    return torch.addmm(x, x, weight, alpha={number / 7})\n\n\n"
    for number in range(30)
)


def write(root: Path, lines: int = 100_000) -> None:
    """Write about `lines` evaluations below a folder."""
    dice = random.Random(20)  # noqa: S311 - sizes and times, no secrets
    for number in range(max(1, round(lines / (SOLUTIONS * WORKLOADS * len(CARDS))))):
        _definition(root, f"gemm_n{128 * (number + 1)}", ("gemm", "rmsnorm", "gqa_paged", "moe")[number % 4], dice)


def _definition(root: Path, name: str, op_type: str, dice: random.Random) -> None:
    axes = {"m": {"type": "var"}, "pages": {"type": "var"}, "k": {"type": "const", "value": 4096}}
    tensor = {"shape": ["m", "k"], "dtype": "bfloat16"}
    document = {"name": name, "op_type": op_type, "axes": axes, "inputs": {"x": tensor}, "outputs": {"y": tensor}}
    _put(root / "definitions" / op_type / f"{name}.json", {**document, "reference": "def run(x):\n    return x\n"})
    sizes = sorted(dice.sample(range(1, 16384), WORKLOADS))
    workloads = [
        {"uuid": f"{dice.getrandbits(128):032x}", "axes": {"m": size, "pages": size // 16 + 1}, "inputs": {}}
        for size in sizes
    ]
    path = root / "traces" / op_type / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as out:
        for number in range(SOLUTIONS):
            solution, author = f"attempt_{number:03d}", f"model-{number % 8}"
            _put(root / "solutions" / author / op_type / name / f"{solution}.json", _solution(solution, name, author))
            speed, faulty = dice.uniform(0.5, 4), dice.choice((0.0, 0.0, 0.3))
            for card in CARDS:
                for workload in workloads:
                    evaluation = _evaluation(workload["axes"]["m"], speed, faulty, card, dice)
                    trace = {"definition": name, "workload": workload, "solution": solution, "evaluation": evaluation}
                    out.write(json.dumps(trace) + "\n")


def _put(path: Path, document: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def _solution(name: str, definition: str, author: str) -> dict[str, object]:
    spec = {"language": "python", "target_hardware": ["cuda"], "entry_point": "main.py::run", "dependencies": []}
    content = SOURCE + f"def run(x):\n    return x  # {name}\n"
    sources = [{"path": "main.py", "content": content}]
    return {"name": name, "definition": definition, "author": author, "spec": spec, "sources": sources}


def _evaluation(size: int, speed: float, faulty: float, card: str, dice: random.Random) -> dict[str, object]:
    failed = dice.random() < faulty
    reference = 2e-3 + 6e-6 * size * dice.uniform(0.95, 1.05)
    latency = reference / speed * dice.uniform(0.9, 1.1)
    status = dice.choice(FAILURES) if failed else "PASSED"
    log = "".join(f"line {number}: {dice.random()} is out of bounds\n" for number in range(40)) if failed else ""
    libs = {"torch": "2.13.0", "triton": "3.7.1", "pytest-flashinfer": "0.1.0"}
    performance = {
        "latency_ms": latency,
        "reference_latency_ms": reference,
        "speedup_factor": reference / latency,
        "roofline_ms": 3e-4 + 1.2e-6 * size,
    }
    return {
        "status": status,
        "environment": {"hardware": card, "libs": libs},
        "timestamp": "2026-01-01T00:00:00",
        "log": log,
        "correctness": None if failed else {"max_relative_error": 1e-3, "max_absolute_error": 1e-2},
        "performance": None if failed else performance,
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
