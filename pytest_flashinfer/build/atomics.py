"""Atomic operations that Triton's CPU interpreter lacks: sums in bfloat16, and exchanges of floats.

They are errors there (seen in Triton 3.7), and a kernel that is right on a card would be blamed for them. Programs run
one after the other, so that an operation on memory is atomic whatever it consists of.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def teach(interpreter: Any) -> None:
    """Add them to what there is."""
    tl, builder, kinds = interpreter.tl, interpreter.InterpreterBuilder, interpreter._ir.ATOMIC_OP  # noqa: SLF001
    original = builder.create_atomic_rmw

    @wraps(original)
    def atomic(self: Any, kind: Any, pointers: Any, value: Any, mask: Any, *how: Any) -> Any:
        scalar = value.dtype.scalar
        if kind == kinds.XCHG and scalar.is_floating():
            return _one_by_one(self, interpreter.TensorHandle, pointers, value, mask, lambda _, new: new)
        if kind == kinds.FADD and scalar == tl.bfloat16:
            return _one_by_one(self, interpreter.TensorHandle, pointers, value, mask, self.create_fadd)
        return original(self, kind, pointers, value, mask, *how)

    builder.create_atomic_rmw = atomic


def _one_by_one(  # noqa: PLR0913, PLR0917 - an operation's own
    builder: Any, handle: Callable[..., Any], pointers: Any, value: Any, mask: Any, made: Callable[[Any, Any], Any]
) -> Any:
    """Store what is `made` of what is in memory and of `value`; at one place one after the other, each rounded."""
    import numpy as np

    scalar, places, given = value.dtype.scalar, pointers.data.reshape(-1), value.data.reshape(-1)
    before = np.zeros_like(given)
    left = np.flatnonzero(mask.data.reshape(-1))
    while left.size:
        _, first = np.unique(places[left], return_index=True)
        now, left = left[first], np.delete(left, first)
        at = handle(places[now], pointers.dtype)
        found = builder.create_load(at, None, None, False)  # noqa: FBT003 - its signature
        before[now] = found.data
        builder.create_store(at, made(found, handle(given[now], scalar)), None, None)
    return handle(before.reshape(value.data.shape), scalar)
