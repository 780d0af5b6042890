"""The handler of a worker that measures what a card can do: no solution is ever loaded here.

One request, `{"do": "probe"}`; the reply: `bandwidth` in bytes/s, `matrix` in FLOP/s by dtype, each the best of some
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.worker.clock import open_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.worker.clock import Clock
    from pytest_flashinfer.worker.memory import Memory

_COPIED = 1 << 29  # bytes: far more than any cache holds
_SIDE = 8192  # of square matrices, at which matrix units are busy
_RUNS = 10
_DTYPES = ("float16", "bfloat16", "float32")


def warm(device: str) -> None:
    """Have a CUDA context."""
    if device != "cpu":
        torch.zeros(1, device="cuda:0")


def call(kernel: object, request: dict[str, Any], memory: Memory) -> dict[str, Any]:
    """Measure; a card that lacks the memory for it uses less of it."""
    del kernel, request, memory
    clock = open_clock("cuda:0", "warm")
    free, _ = torch.cuda.mem_get_info()
    size = min(_COPIED, int(free) // 4)
    source = torch.zeros(size, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source)
    seconds = best(clock, lambda: target.copy_(source))
    torch.backends.cuda.matmul.allow_tf32 = True
    return {"bandwidth": 2 * size / seconds, "matrix": {dtype: _rate(clock, dtype) for dtype in _DTYPES}}


def _rate(clock: Clock, dtype: str) -> float:
    left = torch.randn(_SIDE, _SIDE, device="cuda:0").to(getattr(torch, dtype))
    out = torch.empty_like(left)
    return 2.0 * _SIDE**3 / best(clock, lambda: torch.mm(left, left, out=out))


def best(clock: Clock, work: Callable[[], object]) -> float:
    """Return the shortest of some runs, in seconds: what the card can do, not what it does on average."""
    for _ in range(_RUNS):
        with clock.span():
            work()
    return min(span.seconds for span in clock.read())
