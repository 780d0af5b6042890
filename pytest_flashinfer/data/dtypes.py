"""Names of element types, and the other names under which they are found."""

from __future__ import annotations

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
ALIASES = {
    "fp64": "float64", "double": "float64", "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e4m3fn": "float8_e4m3fn", "float8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp4_e2m1": "float4_e2m1", "float4_e2m1fn": "float4_e2m1", "long": "int64",
    "int": "int32", "short": "int16", "str": "string", "boolean": "bool",
}  # fmt: skip
