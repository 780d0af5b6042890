"""Arithmetic in bfloat16 for Triton's CPU interpreter.

It keeps such values as 16-bit integers, and adds, multiplies and compares those (seen in Triton 3.6 to 3.7): a correct
kernel that multiplies bfloat16 blocks, with `tl.dot` or without, would be blamed for it. Here operands are widened to
float32 and the result is rounded, as compiled kernels do.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ELEMENTWISE = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_erf", "create_rsqrt")


def teach(interpreter: Any) -> None:
    """Replace the operations that would take bits for numbers; constants in bfloat16, which are missing, are added."""
    tl, builder = interpreter.tl, interpreter.InterpreterBuilder
    if interpreter._get_np_dtype(tl.bfloat16).kind != "u":  # noqa: SLF001 - Triton offers no hook for it
        return  # it has numbers of that type by now
    values = _Values(interpreter)
    for name in _ELEMENTWISE:
        if hasattr(builder, name):
            setattr(builder, name, values.elementwise(getattr(builder, name)))
    builder.cast_impl = values.cast(builder.cast_impl)
    builder.create_dot = values.dot(builder.create_dot)
    builder.get_bf16 = values.constant
    reduction = interpreter.ReduceScanOpInterface
    reduction.apply = values.reduction(reduction.apply)


class _Values:
    """What is bfloat16 among an interpreter's values, and the same in float32."""

    def __init__(self, interpreter: Any) -> None:
        import numpy as np

        self.np, self.tl, self.handle = np, interpreter.tl, interpreter.TensorHandle
        self._round: Callable[..., Any] = lambda data: interpreter._convert_float(  # noqa: SLF001
            data, interpreter.tl.float32, interpreter.tl.bfloat16, None
        )

    def constant(self, value: float) -> Any:
        """Make a constant."""
        return self.narrow(self.handle(self.np.array([value], dtype=self.np.float32), self.tl.float32))

    def is_narrow(self, value: Any) -> bool:
        """Whether a value is a handle of bfloat16."""
        bits = isinstance(value, self.handle) and value.data.dtype.char == "H"  # asked of every operand of a kernel
        return bits and value.dtype.scalar == self.tl.bfloat16

    def wide(self, value: Any) -> Any:
        """Return a handle of bfloat16 in float32; anything else as it is."""
        if not self.is_narrow(value):
            return value
        bits = value.data.astype(self.np.uint32) << 16
        return self.handle(bits.view(self.np.float32), self.tl.float32)

    def narrow(self, value: Any, *, truth: bool = True) -> Any:
        """Return a handle of float32 rounded to bfloat16; with `truth` what a comparison gave stays that."""
        if truth and value.data.dtype == bool:
            return self.handle(value.data, self.tl.int1)
        return self.handle(self._round(value.data.astype(self.np.float32)), self.tl.bfloat16)

    def elementwise(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operation on handles of one type."""

        @wraps(original)
        def operation(builder: Any, *given: Any) -> Any:
            if not any(map(self.is_narrow, given)):
                return original(builder, *given)
            return self.narrow(original(builder, *map(self.wide, given)))

        return operation

    def cast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a conversion: where it knows none to or from bfloat16, as of integers, float32 comes between."""

        @wraps(original)
        def cast(builder: Any, source: Any, target: Any) -> Any:
            if target.scalar != self.tl.bfloat16:
                return original(builder, self.wide(source), target)
            if self.is_narrow(source):
                return source
            truth = source.data.dtype == bool  # what a comparison gives, whatever its type is said to be
            return self.narrow(source if truth else original(builder, source, self.tl.float32), truth=False)

        return cast

    def dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a product of matrices; its result is of the accumulator's type."""

        @wraps(original)
        def product(builder: Any, a: Any, b: Any, total: Any, *how: Any) -> Any:
            made = original(builder, self.wide(a), self.wide(b), self.wide(total), *how)
            return self.narrow(made) if self.is_narrow(total) else made

        return product

    def reduction(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reduction or scan of tensors."""

        @wraps(original)
        def apply(operation: Any, given: Any) -> Any:
            if not isinstance(given, tuple) or not any(self.is_narrow(each.handle) for each in given):
                return original(operation, given)
            made = original(operation, tuple(self._tensor(self.wide(each.handle)) for each in given))
            narrow = [self.is_narrow(each.handle) and one.dtype == self.tl.float32
                      for each, one in zip(given, made, strict=False)]  # fmt: skip
            return tuple(
                self._tensor(self.narrow(one.handle), one.shape) if here else one
                for one, here in zip(made, narrow, strict=False)
            )

        return apply

    def _tensor(self, handle: Any, shape: Any = None) -> Any:
        shape = list(handle.data.shape if shape is None else shape)
        kind = self.tl.block_type(handle.dtype, shape) if shape else handle.dtype
        return self.tl.core.tensor(handle, kind)
