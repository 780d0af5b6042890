"""How many floating-point operations a case needs, by rule, for the kinds of operation where that is plain."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.judge.performance.operation import operation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import TensorSpec
    from pytest_flashinfer.judge.performance.lengths import Ragged
    from pytest_flashinfer.worker.case import Case

_HEADS: Final = re.compile(r"head|^h(_|$)", re.IGNORECASE)
_WINDOW: Final = re.compile(r"window|sparse|mask", re.IGNORECASE)
_MASKS: Final = re.compile(r"causal|mask|tri[lu]\b|window", re.IGNORECASE)
_SOFTMAX: Final = re.compile(r"softmax|\bexp2?\b|scaled_dot_product_attention|logsumexp")
_CAUSAL: Final = re.compile(r"\bcausal|_causal", re.IGNORECASE)
_CENTRED: Final = 7  # operations of an element where the mean is taken off as well, with a weight and a bias
_PLAIN: Final = 4  # square, add up, scale, weigh
_MATRIX_DIMS: Final = 2


@dataclass(frozen=True)
class Flops:
    """`count` operations; `dtype` is that of the operands of a matrix unit, `None` where none can be used.

    `certain` says that no right kernel can do with fewer.
    """

    count: int
    dtype: str | None
    certain: bool = False


def flops(case: Case, ragged: Ragged) -> Flops | None:
    """Return what the rule for the definition's op_type gives, or `None` where there is none."""
    definition, operation = case.definition, operation_of(case.definition)
    if operation is None or _WINDOW.search(" ".join((definition.op_type, definition.name, *definition.inputs))):
        return None
    if operation.kind in {"product", "grouped product"}:
        return _product(case, plain=operation.plain)
    if operation.kind == "attention":
        return _attention(case, ragged, plain=operation.plain)
    if operation.kind in {"norm", "centred norm"}:
        return _norm(case, _CENTRED if operation.kind == "centred norm" else _PLAIN)
    return None


def operand_dtype(case: Case) -> str | None:
    """Return the dtype of the first input that is a matrix of floats: the one a matrix unit would be fed with."""
    specs = case.definition.inputs.values()
    return next((spec.dtype for spec in specs if _is_matrix(spec) and "float" in spec.dtype), None)


def _is_matrix(spec: TensorSpec) -> bool:
    return len(spec.shape or ()) >= _MATRIX_DIMS


def _sizes(case: Case) -> Mapping[str, int]:
    return {**case.definition.const_axes, **case.axes}


def _numel(shape: tuple[str, ...], sizes: Mapping[str, int]) -> int | None:
    known = [int(axis) if axis.isdecimal() else sizes.get(axis) for axis in shape]
    return None if None in known else math.prod(size for size in known if size is not None)


def _product(case: Case, *, plain: bool) -> Flops | None:
    """Count C[..., M, N] = A[..., M, K] x B: A shares all axes but one with C, and the other way round."""
    definition = case.definition
    matrices = [set(spec.shape or ()) for spec in definition.inputs.values() if _is_matrix(spec)]
    result = next((set(spec.shape or ()) for spec in definition.outputs.values() if _is_matrix(spec)), set())
    for spec in definition.inputs.values():
        left = set(spec.shape or ())
        if _is_matrix(spec) and len(left - result) == 1 and len(result - left) == 1 and left & result:
            count = _numel(tuple(sorted(left | result)), _sizes(case))
            # Without an operand that has both axes, weights may be of low rank, for one: that takes fewer operations.
            whole = any(left ^ result <= other for other in matrices)
            certain = plain and whole and not _MASKS.search(definition.reference or "")
            return None if count is None else Flops(2 * count, spec.dtype, certain)
    return None


def _attention(case: Case, ragged: Ragged, *, plain: bool) -> Flops | None:
    """Count both products: scores over the width of queries and keys, values over that of the output."""
    definition, sizes = case.definition, _sizes(case)
    shape = next(iter(definition.outputs.values())).shape or ()
    queries = [spec for spec in definition.inputs.values() if spec.shape and spec.shape[:-1] == shape[:-1]]
    queries = [spec for spec in queries if len(spec.shape or ()) > _MATRIX_DIMS]
    widths = [_numel((spec.shape[-1],), sizes) for spec in (*queries, next(iter(definition.outputs.values())))
              if spec.shape]  # fmt: skip
    heads = next((sizes.get(axis) for axis in shape[:-1] if _HEADS.search(axis)), None)
    causal = _is_causal(case)
    pairs = _pairs(case, ragged, shape, causal=causal)
    if not queries or heads is None or pairs is None or None in widths:
        return None
    text = definition.reference or ""
    # Without what stands between them, the products can be taken in the order that is cheaper.
    certain = plain and _SOFTMAX.search(text) is not None and (causal or not _MASKS.search(text))
    return Flops(2 * pairs * heads * sum(width or 0 for width in widths), queries[0].dtype, certain)


def _is_causal(case: Case) -> bool:
    definition = case.definition
    words = " ".join((definition.name, *definition.tags, definition.description or ""))
    return _CAUSAL.search(words) is not None and not re.search(r"non-?causal", words, re.IGNORECASE)


def _pairs(case: Case, ragged: Ragged, shape: tuple[str, ...], *, causal: bool) -> int | None:
    """Return how many (query, key) pairs are scored; under a causal mask the last query sees all keys."""
    definition = case.definition
    if ragged.plan.pointers or ragged.plan.lengths or ragged.plan.pages:
        pairs = ragged.pairs
        return None if pairs is None else sum(_scored(q, kv, causal=causal) for q, kv in pairs)
    sizes = _sizes(case)
    rows = [axis for axis in shape[:-1] if not _HEADS.search(axis)]
    keys = next((spec.shape for name, spec in definition.inputs.items() if re.match(r"k(ey)?s?(_|$)", name)), None)
    own = [axis for axis in keys or () if axis not in shape and not _HEADS.search(axis) and axis != (keys or ())[-1]]
    if len(own) != 1 or len(rows) not in (1, 2) or any(axis not in sizes for axis in (*rows, own[0])):
        return None
    batch = sizes[rows[0]] if len(rows) == 2 else 1  # noqa: PLR2004 - [batch, queries]
    return batch * _scored(sizes[rows[-1]], sizes[own[0]], causal=causal)


def _scored(queries: int, keys: int, *, causal: bool) -> int:
    """Return the pairs of one sequence: query i of n sees the first keys - n + i + 1 keys."""
    if not causal:
        return queries * keys
    seeing = min(queries, keys)  # the others see none
    return seeing * (keys - seeing) + seeing * (seeing + 1) // 2 if seeing else 0


def _norm(case: Case, each: int) -> Flops | None:
    """Count `each` operation of an element, and one for every other input of its shape: a residual is added."""
    definition = case.definition
    shape = next(iter(definition.outputs.values())).shape
    count = _numel(shape, _sizes(case)) if shape else None
    if count is None:
        return None
    alike = sum(spec.shape == shape and case.values.get(name) is not None for name, spec in definition.inputs.items())
    return Flops((each + max(0, alike - 1)) * count, None)
