"""Values of scalars in workloads: which of them an element type holds as they are written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_BITS: Final = {"int4": 4, "int8": 8, "int16": 16, "int32": 32, "int64": 64}
_INTEGERS: Final = {
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _BITS.items()},
    **{f"u{name}": (0, (1 << bits) - 1) for name, bits in _BITS.items() if bits > 4},  # noqa: PLR2004 - none has 4
}
# From here on a value is rounded to infinity, or to NaN where there is none: half a step above the largest.
_TOO_LARGE: Final = {
    "float32": 2.0**128 - 2.0**103,
    "bfloat16": 2.0**128 - 2.0**119,
    "float16": 65520.0,
    "float8_e5m2": 61440.0,
    "float8_e4m3fn": 464.0,
}
# Twice what rounding to a type may change, in proportion; what is not known, as in dumps, is as Python has it.
_ROUNDING: Final = {
    "unknown": 2.0**-52,
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float8_e5m2": 2.0**-2,
    "float8_e4m3fn": 2.0**-3,
}
_ANYTHING: Final = ("unknown", "dtype", "device")


def problem(value: Any, dtype: str, *, optional: bool) -> str | None:
    """Say why a value cannot be that of an input of this dtype; `None` where it can.

    An infinity is one of any float; numbers 0 and 1 stand for false and true.
    """
    if value is None and not optional:
        return f"{dtype}, not null: it is not optional"
    if value is None or dtype in _ANYTHING:
        return None
    if isinstance(value, str) != (dtype == "string") or (isinstance(value, bool) and dtype != "bool"):
        return f"{dtype}, not {_shown(value)}"
    if dtype == "bool" and value not in (0, 1):
        return f"bool, not {_shown(value)}: write true or false"
    return _of_integer(value, dtype) if dtype in _INTEGERS else _of_float(value, dtype)


def rounding(dtypes: Iterable[str]) -> float:
    """Return how far apart, in proportion, numbers are one with scalars of these types in them; 0 without floats.

    0.1 as float32 has it is above 0.1, and `s <= 0.1` is to allow it.
    """
    return max((_ROUNDING.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def range_of(dtype: str) -> tuple[int, int] | None:
    """Return the least and the largest value of a type of integers; `None` for any other."""
    return _INTEGERS.get(dtype)


def _of_float(value: Any, dtype: str) -> str | None:
    if dtype not in _TOO_LARGE or abs(value) < _TOO_LARGE[dtype] or not math.isfinite(value):
        return None
    return f"{dtype}, which {value!r} is too large for"


def _of_integer(value: float, dtype: str) -> str | None:
    if isinstance(value, float) and not value.is_integer():
        return f"{dtype}, not {value!r}: a whole number is needed"
    low, high = _INTEGERS[dtype]
    return None if low <= value <= high else f"{dtype}, from {low} to {high}, which {value!r} is not"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
