"""Dtype names of definitions as torch dtypes, and how a declared shape is stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.data.dtypes import PACKED, PAIRS, stored_shape
from pytest_flashinfer.inputs.errors import InputsError, UnknownDtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flashinfer.data.model import TensorSpec

_PLAIN: Final = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
    PAIRS: torch.float4_e2m1fn_x2,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
    "bool": torch.bool,
}
BYTES: Final = frozenset({torch.float8_e8m0fnu, torch.float4_e2m1fn_x2})  # torch cannot compute in these: make bytes
FLOAT8: Final = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
UNSIGNED: Final = frozenset({torch.uint16, torch.uint32, torch.uint64})  # torch stores these, and hardly computes
IDS: Final = UNSIGNED | {torch.int16, torch.int32, torch.int64}  # what ids and pointers are stored in
TEXTS: Final = frozenset({"string", "dtype", "device"})  # of scalars that are no numbers
NOT_TENSORS: Final = TEXTS | {"unknown"}
# Names of index tensors, whole words of them: a `slotted` table, or an `indexer`'s weights, are none.
_INDEX: Final = re.compile(
    r"indptr|ind(ices|ex)(_|$)|(^|_)idx(_|$)|page_lens?(_|$)|seq_?len|_lens?$|(^|_|page|block)tables?(_|$)|_ids?$"
    r"|(^|_)slots?(_|$)|(^|_)cu_|offsets"
)


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype that stores `name`; packed 4-bit types are stored as bytes.

    Raises UnknownDtype where there is none, as for `string`.
    """
    if name in PACKED:
        return torch.uint8
    try:
        return _PLAIN[name]
    except KeyError:
        raise UnknownDtype(f"dtype `{name}` has no torch dtype; known are {', '.join(_PLAIN)}") from None


def is_packed(name: str) -> bool:
    """Say whether two values share a byte, so that the last axis is stored at half its declared size."""
    return name in PACKED


def is_float(name: str) -> bool:
    """Say whether `name` holds floating-point values that torch can compute with (8-bit floats included)."""
    dtype = _PLAIN.get(name)
    return dtype is not None and dtype.is_floating_point and dtype not in BYTES


def is_integer(name: str) -> bool:
    """Say whether `name` is an integer type of torch; packed 4-bit types and bool are not."""
    dtype = _PLAIN.get(name)
    return dtype is not None and not dtype.is_floating_point and dtype is not torch.bool


def storage_shape(shape: Sequence[int], dtype: str) -> tuple[int, ...]:
    """Return the shape in which a tensor of this declared shape is stored: packed types halve the last axis.

    Raises InputsError where an odd last axis cannot be packed.
    """
    try:
        return stored_shape(shape, dtype)
    except ValueError as error:
        raise InputsError(f"{error}: state an even size") from None


def as_numbers(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor that torch can compare and add up: unsigned integers of more than 8 bits become int64."""
    return x.long() if x.dtype in UNSIGNED else x


def integer_ends(dtype: torch.dtype) -> tuple[int, int]:
    """Return the least and the greatest number of an integer dtype, of those that int64 has."""
    ends = torch.iinfo(dtype)
    return ends.min, min(ends.max, torch.iinfo(torch.int64).max)


def largest(dtype: torch.dtype) -> float:
    """Return the largest finite value of a floating-point dtype."""
    return float(torch.finfo(dtype).max)


def far_off(dtype: torch.dtype) -> float:
    """Return a finite number that is far from all usual ones and, in 16 bits or more, far from the largest one, too."""
    return largest(dtype) if dtype in FLOAT8 else min(largest(dtype) / 8, 3e4)


def guessed_dtype(inputs: Mapping[str, TensorSpec], name: str) -> str:
    """Return the likely dtype of an input whose own is not stated: indices are int32, the rest are as others are."""
    if _INDEX.search(name):
        return "int32"
    floats = [other.dtype for other in inputs.values() if other.shape is not None and is_float(other.dtype)]
    return "float32" if len(inputs[name].shape or ()) <= 1 or not floats else floats[0]
