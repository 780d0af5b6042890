"""The shipped data set, and small inputs on which its references can run in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = sorted(ROOT.glob("definitions/*/*.json"))
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
}


def definition_id(path: Path) -> str:
    return path.stem


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def workloads(path: Path) -> list[dict[str, Any]]:
    """The workload lines of the definition in `path`."""
    file = ROOT / "workloads" / path.parent.name / f"{path.stem}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def sizes(definition: dict[str, Any], axes: dict[str, int]) -> dict[str, int]:
    """All axes: those of a workload and the constant ones."""
    return {name: axis["value"] for name, axis in definition["axes"].items() if axis["type"] == "const"} | axes


def smallest(path: Path) -> dict[str, Any]:
    """The workload with the fewest rows."""
    return min((line["workload"] for line in workloads(path)), key=lambda workload: sum(workload["axes"].values()))


def small_inputs(definition: dict[str, Any], workload: dict[str, Any]) -> list[Any]:
    """Constant floats and the plainest valid indices: one segment, pages in order, position zero."""
    every = sizes(definition, workload["axes"])
    made = []
    for name, spec in definition["inputs"].items():
        given = workload["inputs"].get(name)
        if spec["shape"] is None:
            made.append(given["value"])
            continue
        shape, dtype = [every[axis] for axis in spec["shape"]], DTYPES[spec["dtype"]]
        if name.endswith("indptr"):
            last = {"qo_indptr": "total_q", "m_indptr": "total_m"}.get(name)
            end = every[last] if last else every.get("num_kv_indices", every.get("total_kv"))
            made.append(torch.tensor([0] + [end] * (shape[0] - 1), dtype=dtype))
        elif name in {"kv_indices", "slot_mapping", "state_batch_indices"}:
            made.append(torch.arange(shape[0], dtype=dtype))
        elif dtype.is_floating_point:
            made.append(torch.full(shape, 0.5).to(dtype))
        else:
            made.append(torch.ones(shape, dtype=dtype))
    return made
