"""The device library for Triton's CPU interpreter: `libdevice.tanh` and the like, which give nothing or fail there.

A card's compiler replaces these functions; the interpreter calls their empty bodies, and a kernel with a tanh in it
would be blamed. Those that torch has as well are computed by torch. Waiting for the launch before is done at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_LIBRARIES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
_DEPENDENT = ("triton.language.extra.cuda.gdc", "triton.language.extra.cuda")  # launches that overlap
_SAME = (
    "abs floor ceil trunc sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh "
    "tanh asinh acosh atanh erf erfc erfinv lgamma pow fmod hypot copysign nextafter isnan isinf signbit"
)
_OTHERWISE = {
    "add_rn": "add", "sub_rn": "sub", "mul_rn": "mul", "div_rn": "div", "sqrt_rn": "sqrt", "rsqrt_rn": "rsqrt",
    "rcp_rn": "reciprocal", "rint": "round", "nearbyint": "round", "fast_dividef": "div", "fast_expf": "exp",
    "fast_logf": "log", "fast_log2f": "log2", "fast_log10f": "log10", "fast_sinf": "sin", "fast_cosf": "cos",
    "fast_tanf": "tan", "fast_tanhf": "tanh", "fast_powf": "pow",
}  # fmt: skip
# Formulas for float64, which is exact enough: a product of two float32 numbers has as many bits.
_WIDER: dict[str, Callable[..., torch.Tensor]] = {
    "fma": lambda a, b, c: a * b + c,
    "fma_rn": lambda a, b, c: a * b + c,
    "round": lambda x: (x.abs() + 0.5).floor().copysign(x),  # halves away from zero
    "cbrt": lambda x: x.abs().pow(1 / 3).copysign(x),
    "rcbrt": lambda x: x.abs().pow(-1 / 3).copysign(x),
    "exp10": lambda x: 10.0**x,
    "fast_exp10f": lambda x: 10.0**x,
    "saturatef": lambda x: x.nan_to_num(nan=0.0).clamp(0, 1),
}


def supply(interpreter: Any) -> None:
    """Have the library's functions computed, or say which is not there."""
    import torch

    known = {**{name: name for name in _SAME.split()}, **_OTHERWISE}
    for library in map(importlib.import_module, _LIBRARIES):
        for name, stub in list(vars(library).items()):
            if not name.startswith("_") and getattr(stub, "__module__", "") == library.__name__:
                function = getattr(torch, known[name]) if name in known else _in_float64(_WIDER.get(name))
                setattr(library, name, _computed(interpreter, function) if function else _absent(name))
    modules = [*map(importlib.import_module, _DEPENDENT), interpreter.tl.extra.cuda]  # the last is in memory twice
    for module in modules:
        for name in ("gdc_wait", "gdc_launch_dependents"):
            setattr(module, name, _nothing)


def _nothing(**_: object) -> None:
    """Wait for the kernel before, or have the next one begin: programs of one process never overlap here."""


def _in_float64(formula: Callable[..., torch.Tensor] | None) -> Callable[..., torch.Tensor] | None:
    if formula is None:
        return None
    return lambda *operands: formula(*(x.double() for x in operands)).to(operands[0].dtype)


def _absent(name: str) -> Callable[..., Any]:
    def absent(*_: object, **__: object) -> Any:
        raise NotImplementedError(f"without a card there is no libdevice.{name}; write it with triton.language")

    return absent


def _computed(interpreter: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of an interpreter's tensors and of numbers; numbers are of the first tensor's type."""
    import numpy as np
    import torch

    tl, handle = interpreter.tl, interpreter.TensorHandle

    def computed(*given: Any, **_: object) -> Any:
        tensors = [each for each in given if isinstance(each, tl.core.tensor)]
        dtype = torch.from_numpy(tensors[0].handle.data[:0]).dtype
        operands = [
            torch.from_numpy(np.ascontiguousarray(each.handle.data))
            if isinstance(each, tl.core.tensor)
            else torch.tensor(getattr(each, "value", each), dtype=dtype)
            for each in given
        ]
        data = function(*operands).numpy()
        scalar = tl.int1 if data.dtype == bool else tensors[0].dtype.scalar
        block = any(each.type.is_block() for each in tensors)
        return tl.core.tensor(handle(data, scalar), tl.block_type(scalar, list(data.shape)) if block else scalar)

    return computed
