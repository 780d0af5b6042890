"""Data sets of any size for the scripts of this folder: many definitions, each with its solutions and workloads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

AUTHORS = ("ada", "grace", "edsger")
SOURCE = '''
import torch


def run(x, w):
    """Scale the rows of x to unit mean square, then by w."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)
'''


def write(root: Path, definitions: int, solutions: int, workloads: int, hidden: int = 64) -> None:
    """Write a data set of RMSNorm-like definitions, laid out as a FlashInfer Trace data set is."""
    for number in range(definitions):
        name = f"kernel_{number:04d}_h{hidden}"
        kind = f"norm_{number % 20:02d}"
        put(root / f"definitions/{kind}/{name}.json", json.dumps(definition(name, kind, hidden), indent=2))
        lines = [json.dumps(workload(name, number, size)) for size in range(1, workloads + 1)]
        put(root / f"workloads/{kind}/{name}.jsonl", "\n".join(lines) + "\n")
        for each in range(solutions):
            author = AUTHORS[each % len(AUTHORS)]
            path = root / f"solutions/{author}/{kind}/{name}/attempt_{each:03d}_{name}.json"
            put(path, json.dumps(solution(name, author, each), indent=2))


def put(path: Path, text: str) -> None:
    """Write a file with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def definition(name: str, kind: str, hidden: int) -> dict[str, object]:
    """Return one definition."""
    return {
        "name": name,
        "op_type": kind,
        "description": "Root mean square normalisation of each row, scaled by a weight.",
        "tags": ["status:draft", f"model:{kind}"],
        "axes": {
            "batch_size": {"type": "var", "description": "rows"},
            "hidden_size": {"type": "const", "value": hidden, "description": "columns"},
        },
        "inputs": {
            "x": {"shape": ["batch_size", "hidden_size"], "dtype": "float32", "description": "rows"},
            "w": {"shape": ["hidden_size"], "dtype": "float32", "description": "weight of each column"},
        },
        "outputs": {"y": {"shape": ["batch_size", "hidden_size"], "dtype": "float32", "description": "result"}},
        "reference": SOURCE.strip() + "\n",
    }


def workload(name: str, number: int, size: int) -> dict[str, object]:
    """Return one workload line with random inputs."""
    return {
        "definition": name,
        "solution": None,
        "workload": {
            "uuid": f"{number:08x}-0000-4000-8000-{size:012x}"[::-1],
            "axes": {"batch_size": size},
            "inputs": {"x": {"type": "random"}, "w": {"type": "random"}},
        },
        "evaluation": None,
    }


def solution(name: str, author: str, number: int) -> dict[str, object]:
    """Return one right solution in plain torch; the number makes each a content of its own."""
    return {
        "name": f"attempt_{number:03d}_{name}",
        "definition": name,
        "author": author,
        "spec": {
            "language": "python",
            "target_hardware": [],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": f"# attempt {number}{SOURCE}"}],
    }
