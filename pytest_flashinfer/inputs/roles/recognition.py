"""What each input is for: recognised from constraints, dtype and shape, then descriptions, then conventional names."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.data.dtypes import FOUR_BITS
from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import BYTES, is_float, is_integer, torch_dtype
from pytest_flashinfer.inputs.errors import UnknownDtype
from pytest_flashinfer.inputs.roles.descriptions import alike
from pytest_flashinfer.inputs.roles.distinct_ids import as_distinct, none_twice
from pytest_flashinfer.inputs.roles.float_roles import float_role, rotary_kind
from pytest_flashinfer.inputs.roles.length_roles import (
    ROW_IDS,
    TABLE,
    counts,
    last_page,
    lengths,
    one_a_row,
    pointers,
    summed,
)
from pytest_flashinfer.inputs.roles.row_roles import (
    amounts,
    bits,
    blocks,
    ends,
    order,
    packed,
    parts,
    starts,
    steps,
)
from pytest_flashinfer.inputs.roles.subject import NAMES, Role, Subject, find_axis, index_limit, pool_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flashinfer.inputs.contract import Contract

_CURVED: Final = re.compile(r"\b(sin|cos|tan|exp2?|log(2|10|1p)?|r?sqrt|pow|softmax|sigmoid|tanh|silu|gelu)\(|\*\*")
_SLOTS: Final = r"(page|block)\w*\s*\*\s*\w+\s*\+\s*(slot|offset|in_page)"  # such a table has one for each token


def _table(s: Subject) -> Role | None:
    sure = s.named(TABLE)
    named = sure or s.named(r"page_ind|kv_ind") or s.told(r"(block|page)[ _-]table")
    if len(s.dims) < 2 or not named or s.named("sparse|topk"):  # noqa: PLR2004
        return None
    pool = pool_of(s)
    if pool and s.told(_SLOTS):
        return Role("page_table", limit=slots_of(s.contract, pool), unused=s.unused)
    return Role("page_table", limit=ast.Name(pool) if pool else None, unused=s.unused) if pool or sure else None


def _sparse(s: Subject) -> Role | None:
    named = s.named(r"sparse|top_?k_(ind|idx)|select\w*_ind|^indices$|^topk_(ind|idx)")
    if len(s.dims) < 2 or not named or s.named("expert"):  # noqa: PLR2004
        return None
    pool = pool_of(s)
    return Role("sparse", limit=slots_of(s.contract, pool), unused=(-1,)) if pool else None


def _experts(s: Subject) -> Role | None:
    told = (s.told(r"\bexpert") or _choices(s)) and _below_experts(s)
    named = s.named(r"expert|topk_ids|topk_idx|selected") or told
    if not named or s.named("offset|num|count|size|per_expert"):
        return None
    packed = s.told(r"pack|bits\[") and s.spec.dtype == "int32"
    limit = find_axis(s.contract, "experts")
    return Role("packed_experts", limit=limit) if packed else Role("expert_ids", limit=limit, unused=s.unused)


def _choices(s: Subject) -> bool:
    """Whether each row has as many ids as there are choices of experts: also a table that is looked up for them."""
    row = len(s.dims) > 1 and re.search(r"top_?k$|experts_per_tok", s.axis(-1)) is not None
    return row and find_axis(s.contract, "experts") is not None and not s.named("page|block|kv|sparse")


def _below_experts(s: Subject) -> bool:
    """Whether the range that is stated, if one is, is that of some experts."""
    known = s.contract.constants
    counts = {n for name, n in known.items() if NAMES["experts"].search(name)}
    names = [names_of(tree) for tree in s.upper if (size(tree, known) or 0) + 1 not in counts]
    return all(any(NAMES["experts"].search(name) for name in each) for each in names)


def _slot_ids(s: Subject) -> Role | None:
    named = s.named(r"(state|cache|slot|pool).*(ind|idx|ids?$|map|slot)|slot|^(out_)?cache_loc")
    if not (named or s.told(r"\bslot|state pool")) or s.named("len") or alike(s.text) or s.use.adds:
        return None
    pool = pool_of(s, state=s.named("state") or s.told("state"))
    if pool is None:
        return None
    flat = s.named("mapping|loc") and s.axis(0) not in {"batch_size", "num_seqs"}
    return Role("slots", limit=slots_of(s.contract, pool) if flat else ast.Name(pool), unused=s.unused)


def _page_ids(s: Subject) -> Role | None:
    tied = [ast.unparse(tree) for tree in s.contract.reading.facts.totals.values()]
    if len(s.dims) != 1 or not (s.axis(0) in tied or s.named(r"(kv|page|block).*ind")) or s.named("len|batch"):
        return None
    pool = pool_of(s)
    return Role("page_ids", limit=ast.Name(pool)) if pool else None


def _batch_ids(s: Subject) -> Role | None:
    requests = s.named(r"req(uest)?_(ind|ids?)") and any(NAMES["pointer"].search(name) for name in s.contract.dims)
    if not (s.named(ROW_IDS) or requests) or len(s.dims) > 1:  # rows that are pointed to, several or none
        return None
    return None if (s.unused and not requests) or none_twice(s) else Role("batch_ids", unused=s.unused)


def _positions(s: Subject) -> Role | None:
    if not (
        s.named(r"(^|_)pos(ition)?s?(_|$)|^offsets?$|rope_?ids") or s.told(r"\bposition ind|position id|position of")
    ):
        return None
    return Role("positions", limit=_rows_of_rotary(s), unused=s.unused)


def _rows_of_rotary(s: Subject) -> ast.expr | None:
    """Return how many positions a rotary table has: rather one that does not lead with an axis of the positions.

    What leads with one may be a table as well, `cos[seq_len d]`, but not if `rope` is all that its name says.
    """
    own = {ast.unparse(tree) for tree in s.dims}
    tables = {n: d for n, d in s.contract.dims.items() if d and len(d) > 1 and re.search(r"cos|sin|rope|freq", n)}
    apart = [n for n, d in tables.items() if ast.unparse(d[0]) not in own]
    shared = [n for n in tables if n not in apart and rotary_kind(n) is not None and is_float(s.contract.dtype(n))]
    name = min([*apart, *shared], key=lambda n: (rotary_kind(n) is None, n in shared), default=None)
    if name is None or name in apart:
        return None if name is None else tables[name][0]
    inner = [tree for tree in tables[name][:-1] if not names_of(tree) <= s.contract.constants.keys()]
    return next((tree for tree in inner if ast.unparse(tree) not in own), inner[-1] if inner else tables[name][0])


def _tokens(s: Subject) -> Role | None:
    if not (s.named(r"ids?$|tokens?$|labels?$|targets?$") or s.told("token ind|token id|vocab")):
        return None
    vocab = find_axis(s.contract, "vocab")
    if vocab is None or ast.unparse(vocab) in map(ast.unparse, s.dims):  # a table that tokens look up
        return None
    return Role("token_ids", limit=vocab, unused=s.unused)


def _top_k(s: Subject) -> Role | None:
    """Recognise how many entries of each row a sampler keeps: the name tells, for descriptions count tokens as well."""
    if not s.named(r"^top_?ks?$|^top_k_arr|max_top_k") or not one_a_row(s):
        return None
    rows = (trees for name, trees in s.contract.dims.items() if trees and is_float(s.contract.dtype(name)))
    rows = (trees for trees in rows if len(trees) > 1 and s.dims and ast.unparse(trees[0]) == s.axis(0))
    return Role("top_k", limit=find_axis(s.contract, "vocab") or next((trees[-1] for trees in rows), None))


def _bytes(s: Subject) -> Role | None:
    scale = s.named(r"scales?$|scale_inv|_sf$|^sf") or s.told(r"^\W*u?e8m0")
    if s.spec.dtype not in {"uint8", "int8"}:
        return Role("e8m0") if scale and s.spec.dtype in {"int32", "uint32"} and len(s.dims) > 1 else None
    if scale:
        return Role("e8m0")
    if s.told(r"scale|\bsfs?\b|e8m0"):  # rows of 8-bit floats with their scales in float32: bytes that are good as both
        return Role("fused_bytes")
    return Role("bytes") if len(s.dims) > 1 and not s.use.tables else None


def _seeds(s: Subject) -> Role | None:
    return Role("seed") if s.named(r"seed|philox|rng") else None


def _scratch(s: Subject) -> Role | None:
    facts = s.contract.reading.facts
    told = s.name in facts.bounds or pointers(s)  # what nobody writes into has values that somebody speaks of
    scratch = s.named(r"workspace|semaphore|counter$|scratch|barrier") or (s.named(r"starts?$") and not told)
    return Role("zeros") if scratch else None


def _mask(s: Subject) -> Role | None:
    return Role("mask") if s.named(r"mask|valid|active|flags?$|^is_|has_") and not s.named("masked_m") else None


# In this order: what a name alone tells comes before what descriptions tell, which speak of other inputs as well.
_INTEGERS: Final[tuple[Callable[[Subject], Role | None], ...]] = (
    summed, starts, _top_k, _scratch, last_page, pointers, order, ends, _table, _bytes, amounts, blocks, bits, parts,
    _experts, _sparse, _slot_ids, _batch_ids, steps, _positions, _page_ids, counts, _seeds, lengths, _tokens, _mask,
    packed,
)  # fmt: skip


def role_of(contract: Contract, name: str) -> Role:
    """Return the role of one tensor input; what nothing tells is plain `data` or an `index`.

    Raises UnknownDtype where the dtype is none of a tensor's.
    """
    spec = contract.definition.inputs[name]
    subject = Subject(contract, name, spec, contract.dims[name] or ())
    dtype = contract.dtype(name)
    if dtype == "bool":
        return Role("mask")
    if dtype in FOUR_BITS:
        return Role("bytes")
    if torch_dtype(dtype) in BYTES:
        return Role("e8m0")
    if is_float(dtype):
        return float_role(subject)
    if not is_integer(dtype):
        raise UnknownDtype(f"input `{name}` has dtype `{spec.dtype}`, which is none of a tensor's")
    for recognise in _INTEGERS:
        role = recognise(subject)
        if role is not None:
            return as_distinct(subject, role)
    limit = index_limit(subject)
    return as_distinct(
        subject, Role("index", limit=limit, unused=subject.unused, number=limit is None and _number(subject))
    )


def _number(s: Subject) -> bool:
    """Whether the reference only computes with the values, in no function that has a usual range, and nothing is said.

    Bits that are taken apart are not computed with.
    """
    if not s.use.known or s.use.limits or s.use.tables or s.use.sizes or s.use.bits:
        return False
    said = s.upper or s.unused or any(s.name in rule.names for rule in s.contract.reading.data)
    return not said and not _CURVED.search(s.contract.definition.reference or "")


def all_roles(contract: Contract) -> dict[str, Role]:
    """Return the role of every tensor input; those without a dtype of tensors are left out."""
    roles = {}
    for name, dims in contract.dims.items():
        if dims is None:
            continue
        try:
            roles[name] = role_of(contract, name)
        except UnknownDtype:
            continue
    return roles
