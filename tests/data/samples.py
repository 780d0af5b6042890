"""Small documents of every form, and a way to write them to files."""

import copy
import json
from pathlib import Path
from typing import Any

BASE: dict[str, Any] = {
    "name": "scale_add_h8",
    "op_type": "elementwise",
    "axes": {"n": {"type": "var"}, "h": {"type": "const", "value": 8}},
    "inputs": {"x": {"shape": ["n", "h"], "dtype": "float32"}, "w": {"shape": ["h"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32"}},
    "reference": "def run(x, w):\n    return x * w + 1\n",
}
LINE: dict[str, Any] = {
    "definition": "scale_add_h8",
    "solution": None,
    "workload": {"uuid": "w-0001", "axes": {"n": 4}, "inputs": {"x": {"type": "random"}, "w": {"type": "random"}}},
    "evaluation": None,
}
GOOD: dict[str, Any] = {
    "name": "scale_add_good",
    "definition": "scale_add_h8",
    "author": "someone",
    "spec": {
        "language": "python",
        "target_hardware": ["cpu"],
        "entry_point": "main.py::run",
        "dependencies": [],
        "destination_passing_style": False,
    },
    "sources": [{"path": "main.py", "content": "def run(x, w):\n    return x * w + 1\n"}],
}
SIGNATURE: dict[str, Any] = {
    "op": "gemm",
    "axes": {"m": {"type": "var"}, "n": {"type": "const", "value": 64}, "g": {"type": "const", "value": "64 / 16"}},
    "input": {
        "a": {"shape": ["m", "n"], "dim_order": [1, 0], "dtype": "bf16"},
        "b": {"shape": ["g", "n"], "dtype": "int4"},
        "c": {"shape": ["n"]},
    },
    "output": {"d": {"shape": ["m", "n"], "dtype": "fp32"}},
    "code": "def helper(a):\n    return a\n\n\ndef forward(a, b, c):\n    return helper(a).float()\n",
}
DESCRIPTION: dict[str, Any] = {
    "id": "shifted",
    "axes": {"b": {"type": "var"}, "q": {"type": "var", "parent": "b"}, "h": {"type": "const", "value": 4}},
    "assumptions": ["h == 4"],
    "inputs": {"x": {"shape": ["b", "q", "h"]}, "eps": {"shape": [], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["b", "q", "h"], "dtype": "float8_e4m3"}, "peak": {"shape": [], "dtype": "float32"}},
    "reference_code": "def run(x, eps):\n    return x + eps, float(x.max())\n",
}
DUMP: dict[str, Any] = {
    "name": "rope_in_place_d16",
    "definition": "rope_in_place",
    "op_type": "rope",
    "tags": ["fi_api:flashinfer.rope.apply_in_place"],
    "axes": {"nnz": {"type": "var"}, "d": {"type": "const"}},
    "inputs": {
        "q": {"shape": ["nnz", "d"], "dtype": "float16"},
        "mask": {"shape": ["nnz"], "dtype": "unknown", "optional": True},
        "layout": {"shape": None, "dtype": "string", "optional": True},
    },
    "outputs": {
        "q": {"shape": ["nnz", "d"], "dtype": "float16"},
        "r": {"shape": ["nnz"], "dtype": "uint8", "param": "mask"},
    },
    "constraints": ["layout in ('NHD', 'HND')", "mask is None or mask.shape[0] == nnz", "1 <= d <= 256"],
    "reference": "def _turn(q):\n    return q\n\n\ndef _rope_reference(q, mask=None, **rest):\n    return _turn(q)\n",
    "init": "def _rope_init(*, nnz, device='cuda', seed=0):\n    return {}\n",
    "check": "def check(ref, got, *, rtol=None, atol=None):\n    return True\n",
}
SOL: dict[str, Any] = {
    "name": "split_heads",
    "op_type": None,
    "axes": {
        "t": {"type": "var", "description": None},
        "hidden": {"type": "const", "value": 64},
        "heads": {"type": "const", "value": 4},
        "dim": {"type": "expr", "expression": "hidden // heads"},
    },
    "custom_inputs_entrypoint": "make",
    "inputs": {"x": {"shape": ["t", "heads", "dim"], "dtype": "float64"}, "p": {"shape": ["t"], "dtype": "int64"}},
    "outputs": {"y": {"shape": ["t", "heads", "dim"], "dtype": "float64"}},
    "reference": "def make(axes_and_scalars, device):\n    return {}\n\n\ndef run(x, p):\n    return x[p]\n",
}


def changed(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with some top-level keys replaced, or left out where the value is `...`."""
    result = copy.deepcopy(document) | {key: value for key, value in changes.items() if value is not ...}
    for key, value in changes.items():
        if value is ...:
            result.pop(key, None)
    return result


def workload_line(**changes: Any) -> dict[str, Any]:
    """LINE with some keys of its workload replaced or left out."""
    return changed(LINE, workload=changed(LINE["workload"], **changes))


def write(path: Path, document: Any) -> Path:
    """Write a document as indented JSON, or text as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    return path


def write_lines(path: Path, *lines: Any) -> Path:
    """Write documents one a line."""
    return write(path, "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def messages(faults: Any) -> list[str]:
    """The faults proper, as text."""
    return [str(fault) for fault in faults if fault.kind == "fault"]
