"""The readers of this floor in one place."""

from __future__ import annotations

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_traces, load_workloads

__all__ = ["load_definition", "load_solution", "load_traces", "load_workloads"]
