"""Names of element types, and the other names under which they are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CANONICAL = (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1",
    "int64", "int32", "int16", "int8", "bool",
)  # fmt: skip
BEYOND = (
    "float64", "uint8", "uint16", "uint32", "uint64", "int4", "float4_e2m1fn_x2", "float8_e8m0fnu", "string", "unknown",
    "dtype", "device",
)  # fmt: skip
DTYPES = (*CANONICAL, *BEYOND)
PACKED = frozenset({"float4_e2m1", "int4"})  # two elements a byte along the last axis; shapes count elements
PAIRS = "float4_e2m1fn_x2"  # torch's name of two elements of float4_e2m1, which are one of a shape
FOUR_BITS = PACKED | {PAIRS}  # bytes hold two elements, however shapes count them
ALIASES = {
    "fp64": "float64", "double": "float64", "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e4m3fn": "float8_e4m3fn", "float8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp4_e2m1": "float4_e2m1", "float4_e2m1fn": "float4_e2m1", "long": "int64",
    "int": "int32", "short": "int16", "str": "string", "boolean": "bool",
}  # fmt: skip


def stored_shape(shape: Sequence[int], dtype: str) -> tuple[int, ...]:
    """Return the shape in which a tensor of a declared shape is stored: packed types halve the last axis.

    Raises ValueError where an odd last axis cannot be packed.
    """
    if dtype not in PACKED or not shape:
        return tuple(shape)
    if shape[-1] % 2:
        raise ValueError(f"{dtype} packs two elements a byte, but the last axis of {list(shape)} is odd")
    return (*shape[:-1], shape[-1] // 2)
