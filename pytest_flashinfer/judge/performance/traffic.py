"""How many bytes a case has to move: each input once, each output once, of a cache only what its indices touch."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.judge.performance.operation import Operation, operation_of

if TYPE_CHECKING:
    import torch

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.judge.performance.lengths import Ragged
    from pytest_flashinfer.worker.case import Case

# Operations that need all of what is counted. Of others a kernel may be right to read a part: a slice, a sample.
_WHOLE: Final = frozenset({"product", "grouped product", "attention", "norm", "centred norm", "softmax", "activation"})
# Index tensors that are followed exactly; with any other one it may be so as well.
_FOLLOWED: Final = frozenset({"indptr", "last_page_len", "seq_lens", "page_ids", "page_table", "slots", "token_ids",
                              "positions", "expert_ids"})  # fmt: skip
_CONTENT: Final = frozenset({"bytes", "e8m0", "fused_bytes", "zeros", "seed"})
_SKIPS: Final = re.compile(r"sparse|window|mask|dropout", re.IGNORECASE)
_SCRATCH: Final = re.compile(r"workspace|scratch|semaphore", re.IGNORECASE)
_HELD_BACK: Final = 1 << 27  # bytes that a call may leave in a cache without waiting for memory: no L2 is larger
_CUTS: Final = re.compile(r"\btri[lu]\b|window|sparse|dropout", re.IGNORECASE)
_TOP_K: Final = re.compile(r"(num_)?(experts_per_tok(en)?|top_?k)", re.IGNORECASE)
_WRITTEN_K: Final = re.compile(r"^\s*top_?k\b[^=\n]*=\s*(\d+)\b", re.IGNORECASE | re.MULTILINE)
_STACKED: Final = 3  # dimensions of the weights of all experts
_GATHERS: Final = ("slots", "token_ids", "positions", "expert_ids", "page_ids", "page_table")


@dataclass(frozen=True)
class Traffic:
    """Bytes of one call, an estimate; `certain` is what no right kernel can do without, 0 where nobody can say."""

    read: int
    written: int
    certain: int = 0

    @property
    def total(self) -> int:
        """All bytes that cross the memory's pins if each is moved once."""
        return self.read + self.written


def traffic(case: Case, ragged: Ragged) -> Traffic:
    """Count a case's bytes; packed dtypes count as they are stored."""
    import torch

    tensors = [name for name, value in case.values.items() if isinstance(value, torch.Tensor)]
    touched = {name: 0 if _SCRATCH.search(name) else _touched(name, case, ragged) for name in tensors}
    inplace, fresh, certain = 0, 0, 0
    for output in case.outputs:
        if output.inplace is not None and output.inplace in touched:
            inplace += touched[output.inplace]
            if _overwritten(output.inplace, case, ragged):
                touched[output.inplace] = 0
        else:
            size = math.prod(output.shape) * output.dtype.itemsize
            fresh += size
            certain += 0 if output.optional else size
    read = sum(touched.values())
    if not _is_certain(case, ragged):
        return Traffic(read, inplace + fresh)
    written_into = {output.inplace for output in case.outputs}
    needed = sum(size for name, size in touched.items() if name not in written_into and _mentioned(name, case))
    return Traffic(read, inplace + fresh, needed + max(0, certain - _HELD_BACK))


def _mentioned(name: str, case: Case) -> bool:
    """Whether the reference speaks of an input beyond its list of parameters."""
    text = case.definition.reference or ""
    return len(re.findall(rf"\b{re.escape(name)}\b", text)) > 1


def _is_certain(case: Case, ragged: Ragged) -> bool:
    definition, roles, operation = case.definition, ragged.plan.roles, operation_of(case.definition)
    words = " ".join((definition.name, definition.op_type, *definition.inputs))
    integers = {name: role.kind for name, role in roles.items() if _integral(case.values.get(name))}
    if operation is None or not operation.plain or operation.kind not in _WHOLE or _SKIPS.search(words):
        return False
    if _leaves_out(operation, definition):
        return False
    if not set(integers.values()) <= _FOLLOWED | _CONTENT or any(type(each) is int for each in case.values.values()):
        return False  # a number may say how much of a tensor is in use
    if "seq_lens" in integers.values() and not ragged.plan.pages:
        return False  # padded rows need not be read, and nothing here says which those are
    if ragged.plan.pages or (ragged.plan.pointers and operation.kind != "grouped product"):
        return ragged.pairs is not None
    return True


def _leaves_out(operation: Operation, definition: Definition) -> bool:
    """Whether the reference cuts away a part of its inputs; a triangle of scores is a causal mask, and needs all."""
    cuts = {word.lower() for word in _CUTS.findall(definition.reference or "")}
    return bool(cuts - {"tril", "triu"} if operation.kind == "attention" else cuts)


def _integral(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and not value.is_floating_point()


def _touched(name: str, case: Case, ragged: Ragged) -> int:
    """Return how many bytes of an input have to be read."""
    value: torch.Tensor = case.values[name]
    trees, stored = ragged.contract.dims.get(name), _stored(value)
    if not trees or not value.ndim or not value.shape[0]:
        return stored
    rows = _cache_rows(ragged) if name in ragged.plan.caches else None
    if rows is not None:
        slots = value.shape[0] * (ragged.page if ragged.plan.caches[name] is not None else 1)
        return min(stored, rows * stored // slots)
    axis = ast.unparse(trees[0])
    for rows in (
        _sequence_rows(axis, ragged),
        _gathered_rows(axis, value.shape[0], ragged),
        _expert_rows(value, axis, case, ragged),
    ):
        if rows is not None:
            return min(stored, rows * stored // value.shape[0])
    return stored


def _stored(value: torch.Tensor) -> int:
    """Return the bytes of a tensor without those that an expanded axis repeats."""
    sizes = (size for size, stride in zip(value.shape, value.stride(), strict=True) if stride or not size)
    return math.prod(sizes) * value.element_size()


def _sequence_rows(axis: str, ragged: Ragged) -> int | None:
    """Return the rows of concatenated sequences that take part: keys that a query meets, queries that meet a key."""
    pairs = ragged.pairs
    if pairs is None or ragged.q is None:
        return None
    for pointer in ragged.plan.pointers:
        if pointer.total is None or ast.unparse(pointer.total) != axis or pointer.unit != "tokens":
            continue
        if pointer.group == "kv":
            return sum(kv for q, kv in pairs if q)
        if pointer.group == "q":
            return sum(q for q, kv in pairs if kv)
    return None


def _expert_rows(value: torch.Tensor, axis: str, case: Case, ragged: Ragged) -> int | None:
    """Return how many experts or groups get a row, of weights that are stacked by them."""
    operation = operation_of(case.definition)
    if operation is None or operation.kind not in {"grouped product", "moe"} or value.ndim < _STACKED:
        return None
    groups = value.shape[0]
    for pointer in ragged.plan.pointers:
        lengths = ragged.segments.get(pointer.name, ())
        if len(lengths) == groups:
            return sum(n > 0 for n in lengths)
    each, tokens = _experts_per_token(case, ragged), next(iter(case.outputs)).shape[:1]
    if operation.kind != "moe" or each is None or not tokens or "expert" not in axis:
        return None
    return min(groups, each * tokens[0])  # at most; which ones, the routing decides


def _experts_per_token(case: Case, ragged: Ragged) -> int | None:
    """Return to how many experts a token goes: an axis says it, the width of their ids, or the reference."""
    sizes = {**case.definition.const_axes, **case.axes}
    for index, role in ragged.plan.roles.items():
        if role.kind == "expert_ids" and index in ragged.indices and ragged.indices[index].ndim > 1:
            return ragged.indices[index].shape[-1]
    named = (size for axis, size in sizes.items() if _TOP_K.fullmatch(axis))
    written = (int(each) for each in _WRITTEN_K.findall(case.definition.reference or ""))
    return next(named, None) or next(written, None)


def _cache_rows(ragged: Ragged) -> int | None:
    """Return how many slots of a paged cache are attended to; pages that sequences share count once."""
    import torch

    pairs, pages = ragged.pairs, next((each for each in ragged.plan.pages if each in ragged.indices), None)
    if pairs is None or pages is None:
        return None
    page, ids = ragged.page, ragged.indices[pages].to(torch.int64)
    counts = torch.tensor([-(-kv // page) for _, kv in pairs], dtype=torch.int64)
    asked = torch.tensor([kv if q else 0 for q, kv in pairs], dtype=torch.int64)
    owner = torch.arange(len(pairs)).repeat_interleave(counts)
    place = torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner]  # of a page in its sequence
    if ids.ndim == 1:
        if len(ids) < len(owner):
            return None
        entries = ids[: len(owner)]
    else:
        table = ids.flatten(1)
        if table.shape[0] != len(pairs) or int(counts.max() if len(counts) else 0) > table.shape[1]:
            return None
        entries = table[owner, place]
    used = (asked[owner] - place * page).clamp(0, page)
    valid = entries >= 0
    most = torch.zeros(int(entries.max()) + 1 if len(entries) else 0, dtype=torch.int64)
    return int(most.scatter_reduce_(0, entries[valid], used[valid], "amax").sum())


def _gathered_rows(axis: str, rows: int, ragged: Ragged) -> int | None:
    """Return how many different rows the indices into an input name; `None` where none point into it."""
    import torch

    embeds = "embed" in ragged.contract.definition.op_type
    for index, role in ragged.plan.roles.items():
        if role.kind not in _GATHERS or role.limit is None or index not in ragged.indices:
            continue
        if ast.unparse(role.limit) == axis and (role.kind != "token_ids" or embeds):
            ids = ragged.indices[index].flatten()
            return int(torch.unique(ids[(ids >= 0) & (ids < rows)]).numel())
    return None


def _overwritten(name: str, case: Case, ragged: Ragged) -> bool:
    """Whether rows of an input are replaced, not updated: another input has a row for each that is written."""
    trees = ragged.contract.dims.get(name) or ()
    for index, role in ragged.plan.roles.items():
        heads = ragged.contract.dims.get(index) or ()
        if role.kind != "slots" or len(heads) != 1 or case.values.get(index) is None:
            continue
        row = [ast.unparse(tree) for tree in (*heads, *trees[1:])]
        others = (dims for other, dims in ragged.contract.dims.items() if dims and other != name)
        if any([ast.unparse(tree) for tree in dims] == row for dims in others):
            return True
    return False
