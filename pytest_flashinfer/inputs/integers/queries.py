"""Queries that no pointers split among sequences, and the most keys that a sequence has room for."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.dtypes import is_integer
from pytest_flashinfer.inputs.integers.segments import USUAL
from pytest_flashinfer.inputs.roles.subject import NAMES, pools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting
    from pytest_flashinfer.inputs.plan import Plan

_LEN: Final = re.compile(r"len")
_SOME: Final = re.compile(r"causal|tri[lu]\b|mask|window|-inf|finfo", re.IGNORECASE)  # a query may see no key at all
_LONGEST: Final = 4 * USUAL
_ROWS: Final = frozenset({"data", "unit"})


def requests(contract: Contract, plan: Plan) -> ast.expr | None:
    """Return how many sequences have queries: heads that each have lengths of their own share them."""
    if not isinstance(plan.batch, ast.BinOp) or not isinstance(plan.batch.op, ast.Mult):
        return plan.batch
    free = [name for name in sorted(names_of(plan.batch)) if name not in contract.constants]
    return ast.Name(free[0]) if len(free) == 1 else plan.batch


def split_rows(contract: Contract, plan: Plan, group: str) -> ast.Name | None:
    """Return the axis of rows of queries, or of keys, that belong to sequences which only lengths or tables tell of."""
    if plan.batch is None or plan.pointer(group, "plain") or plan.of("batch_ids"):
        return None
    if group == "kv" and (plan.of("page_table") or not any(plan.roles[n].group == "kv" for n in plan.lengths)):
        return None
    batch = set(names_of(plan.batch))  # with what they follow from: `len_indptr == batch_size + 1`
    batch |= {n for name in batch if name in contract.derived for n in contract.derived[name].names}
    for name, tree in _leading(contract, plan, group):
        if isinstance(tree, ast.Name) and tree.id not in {*contract.constants, *pools(contract), *batch}:
            return tree if len(contract.dims[name] or ()) > 1 else None
    return None


def _leading(contract: Contract, plan: Plan, group: str) -> Iterator[tuple[str, ast.expr]]:
    what, other = ("query", "keys") if group == "q" else ("keys", "query")
    for name, dims in contract.dims.items():
        named = NAMES[what].search(name) and not NAMES[other].search(name)
        if dims and name in plan.roles and plan.roles[name].kind in _ROWS and named:
            yield name, dims[0]


def told_lengths(plan: Plan, group: str) -> bool:
    """Whether a tensor says how many rows of this group each sequence has."""
    return any(plan.roles[name].group == group for name in plan.lengths)


def least_keys(setting: Setting, found: Sequences) -> int:
    """Return how many keys a sequence that has some needs: one for each query, unless each query sees all of them.

    So it is where they are padded and nothing tells of a mask; keys in a cache are those of the queries' own past.
    """
    definition = setting.contract.definition
    text = f"{definition.op_type} {definition.description or ''} {definition.reference or ''}"
    return each(setting, found) if setting.plan.pages or setting.plan.caches or _SOME.search(text) else 1


def each(setting: Setting, found: Sequences) -> int:
    """Return how many queries every sequence has, where all have as many; else 1."""
    contract, plan = setting.contract, setting.plan
    rows = split_rows(contract, plan, "q")
    if rows is not None:
        count = setting.size(requests(contract, plan)) or found.count
        return 1 if told_lengths(plan, "q") else max(1, (setting.size(rows) or 0) // max(1, count))
    whose = requests(contract, plan)
    batch = ast.unparse(whose) if whose is not None else ""
    for name, tree in _leading(contract, plan, "q"):
        dims = contract.dims[name] or ()
        if ast.unparse(tree) == batch and len(dims) > 2 and _LEN.search(ast.unparse(dims[1])):  # noqa: PLR2004
            return max(1, setting.size(dims[1]) or 1)
    return 1


def bounds_of_lengths(contract: Contract) -> Iterator[str]:
    """Yield the integer scalars that say how long the longest sequence is, and that are no sizes themselves."""
    for name, spec in contract.definition.inputs.items():
        whole = spec.shape is None and is_integer(spec.dtype) and NAMES["longest"].search(name)
        if whole and name not in contract.sizes and name not in contract.constants:
            yield name


def of_queries(name: str) -> bool:
    """Whether such a scalar is of queries: `max_q_len`, `max_tokens_per_sequence`."""
    named = NAMES["query"].search(name) and not NAMES["keys"].search(name)
    return bool(named or re.search(r"tokens?_per_seq", name))


def capacity(setting: Setting, found: Sequences, stated: int | None = None) -> int:
    """Return how many keys one sequence can have: by its page table, or by the padded axis of the keys.

    Where neither says it, as many as are `stated`, if there is an axis that large.
    """
    largest = max((setting.env.get(name) or 0 for name in setting.contract.axis_names), default=0)
    usual = stated if stated is not None and stated <= largest else _LONGEST
    return min(rooms(setting, found), default=usual)


def rooms(setting: Setting, found: Sequences) -> Iterator[int]:
    """Yield how many keys a sequence can have, by scalars, page tables and what is padded to the longest."""
    contract, plan = setting.contract, setting.plan
    tables = plan.of("page_table")
    known = (setting.env.get(name) for name in bounds_of_lengths(contract) if not of_queries(name))
    yield from (most for most in known if isinstance(most, int) and most > 0)
    yield from (setting.shape(name)[-1] * found.page_size for name in tables)
    own = [dims or () for name, dims in contract.dims.items() if NAMES["query"].search(name)]
    queries = {ast.unparse(tree) for dims in own for tree in dims}
    leading = pools(contract)
    data = [name for name, role in plan.roles.items() if role.kind in _ROWS]
    others = [name for name in data if not NAMES["query"].search(name)]
    apart = tables or any(NAMES["keys"].search(name) for name in others)  # queries have an axis of their own
    for name in others if apart else data:
        trees = contract.dims[name] or ()
        if any(ast.unparse(tree) in leading for tree in trees[:2]):
            yield from _longest(setting, trees[2:])
        elif setting.size(trees[0] if trees else None) == found.count:
            yield from _longest(setting, trees[1:3])
    for dims in contract.output_dims.values():
        yield from _longest(setting, tuple(tree for tree in (dims or ())[1:] if ast.unparse(tree) not in queries))


def _longest(setting: Setting, trees: tuple[ast.expr, ...]) -> Iterator[int]:
    sizes = [n for t in trees if _LEN.search(getattr(t, "id", "")) and (n := setting.size(t)) is not None]
    yield from [max(sizes)] if sizes else []
