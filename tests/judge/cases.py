"""Inputs for the kernels: plain ones, and rows that bring out what plain ones hide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, Truth

from . import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_flashinfer.judge.comparison.record import Comparison

REFERENCES = {
    "gemm": kernels.gemm,
    "rmsnorm": kernels.rmsnorm,
    "softmax": kernels.softmax,
    "attention": kernels.attention,
}


@dataclass
class Case:
    inputs: dict[str, Any]
    outputs: dict[str, OutputSpec]
    truth: Truth

    def judge(self, kernel: Callable[..., Any]) -> list[Comparison]:
        given = [x.clone() if isinstance(x, torch.Tensor) else x for x in self.inputs.values()]
        result = kernel(*given)
        values = result if isinstance(result, tuple) else (result,)
        truths = self.truth.outputs.values()
        return [compare(x.to(t.native.dtype), t) for x, t in zip(values, truths, strict=True)]  # type: ignore[union-attr]


def mixed(x: torch.Tensor) -> torch.Tensor:
    """One row each tiny, large and zero."""
    rows = x.view(x.shape[0], -1).clone()
    rows[1] *= 2.0**-10
    rows[2] *= 2.0**5
    rows[3] = 0
    return rows.view(x.shape)


def inputs(op: str, dtype: torch.dtype) -> Iterator[tuple[dict[str, Any], dict[str, OutputSpec]]]:
    g = torch.Generator().manual_seed(11)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g)

    name = name_of(dtype)
    if op == "gemm":
        for m, n, k in ((1, 64, 128), (17, 96, 1024)):
            a = randn(m, k) if m == 1 else mixed(randn(m, k))
            yield {"a": a.to(dtype), "b": randn(n, k).to(dtype)}, {"c": OutputSpec(name, (m, n))}
    elif op == "rmsnorm":
        for n, h in ((1, 128), (9, 1024)):
            x = randn(n, h) if n == 1 else mixed(randn(n, h))
            yield {"x": x.to(dtype), "w": (1 + 0.1 * randn(h)).to(dtype)}, {"y": OutputSpec(name, (n, h))}
    elif op == "softmax":
        for n, v in ((1, 65), (6, 2000)):
            x = randn(n, v) if n == 1 else mixed(2 * randn(n, v))
            yield {"x": x.to(dtype)}, {"p": OutputSpec(name, (n, v)), "lse": OutputSpec("float32", (n,))}
    else:
        for b, n, d in ((1, 1, 32), (4, 150, 64)):
            q, k, v = randn(b, 4, d), randn(b, n, 4, d), randn(b, n, 4, d)
            if b == 4:
                v[1] = v[1].abs() + 0.25
                q[2] *= 4
            specs = {"o": OutputSpec(name, (b, 4, d)), "lse": OutputSpec("float32", (b, 4))}
            yield {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype), "scale": d**-0.5}, specs


def make(op: str, dtype: torch.dtype) -> list[Case]:
    return [Case(given, specs, evaluate(REFERENCES[op], given, specs)) for given, specs in inputs(op, dtype)]
