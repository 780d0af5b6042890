"""Small definitions and workloads made in memory."""

from __future__ import annotations

from pytest_flashinfer.data.model import Axis, Definition, InputSpec, TensorSpec, Workload

ROWS = Definition(
    "rows_h8",
    "elementwise",
    {"n": Axis("var"), "m": Axis("var"), "h": Axis("const", 8)},
    {
        "x": TensorSpec(("n", "h"), "float32"),
        "z": TensorSpec(("m",), "float32", optional=True),
        "scale": TensorSpec(None, "float32"),
    },
    {"y": TensorSpec(("n", "h"), "float32")},
    "def run(x, z, scale):\n    return x * scale\n",
)


def workload(n, m=1, axes=None):
    return Workload(f"w-{n:08d}-{m}", axes or {"n": n, "m": m}, {"x": InputSpec("random")})
