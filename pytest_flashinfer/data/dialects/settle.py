"""What all forms have in common: older spellings of keys, dtypes, sizes and shapes, and the name of the entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.constraints import ConstraintError, evaluate_integer
from pytest_flashinfer.data.dialects.entry import strip_wrapper
from pytest_flashinfer.data.dialects.ragged import unroll
from pytest_flashinfer.data.dtypes import ALIASES

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft
    from pytest_flashinfer.data.faults import JsonPath


def settle(draft: Draft) -> None:
    """Bring the spellings that any form may have into the canonical ones."""
    _old_type(draft)
    for key in ("constraints", "tags"):
        if isinstance(draft.raw.get(key), str):
            draft.raw[key] = [draft.raw[key]]
            draft.notes.append(f"{key!r} is one string: read as a list of one")
    for where, axis in draft.objects("axes"):
        _size(draft, where, axis)
    for where, tensor in draft.objects("inputs", "outputs"):
        _dtype(draft, where, tensor)
        _shape(draft, where, tensor)
    entry, reference = draft.text("entry"), draft.text("reference")
    if entry is not None:
        draft.entry = entry
        del draft.raw["entry"]
    if reference is not None:
        draft.raw["reference"] = strip_wrapper(reference, draft.entry)
    unroll(draft)


def _old_type(draft: Draft) -> None:
    if "op_type" not in draft.raw and isinstance(draft.raw.get("type"), str):
        draft.rename("type", "op_type")
        draft.faults.append((("op_type",), "older key `type`: rename it to `op_type`"))


def _size(draft: Draft, where: JsonPath, axis: dict[str, Any]) -> None:
    value = axis.get("value")
    if isinstance(value, float) and value.is_integer():
        axis["value"] = int(value)
    elif isinstance(value, str):
        try:
            axis["value"] = evaluate_integer(value)
        except ConstraintError as error:
            draft.faults.append(((*where, "value"), str(error)))
            return
    else:
        return
    draft.notes.append(f"axis {where[-1]!r}: value {value!r} read as {axis['value']}")


def _dtype(draft: Draft, where: JsonPath, tensor: dict[str, Any]) -> None:
    dtype = tensor.get("dtype")
    if dtype is None and draft.default_dtype is not None:
        tensor["dtype"] = draft.default_dtype
        draft.notes.append(f"{where[-1]!r}: no dtype: {draft.default_dtype}, the default of this form")
    elif isinstance(dtype, str):
        plain = dtype.removeprefix("torch.")
        tensor["dtype"] = ALIASES.get(plain, plain)
        if tensor["dtype"] != dtype:
            draft.notes.append(f"{where[-1]!r}: dtype {dtype!r} read as {tensor['dtype']!r}")


def _shape(draft: Draft, where: JsonPath, tensor: dict[str, Any]) -> None:
    shape = tensor.get("shape")
    if isinstance(shape, list) and any(type(size) is int for size in shape):
        tensor["shape"] = [str(size) if type(size) is int else size for size in shape]
        draft.notes.append(f"{where[-1]!r}: sizes in the shape read as constant axes")
