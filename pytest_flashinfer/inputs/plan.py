"""Which tensors describe ragged sequences, and which sizes their totals are: found once for a definition."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.integers.shared_pages import pages_are_read_only
from pytest_flashinfer.inputs.pointers import Pointer, pointers_of_roles
from pytest_flashinfer.inputs.roles.recognition import all_roles
from pytest_flashinfer.inputs.roles.stated_promises import Promises, stated_promises, words_of
from pytest_flashinfer.inputs.roles.subject import Role, counts_slots, find_axis, page_size, pools

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.contract import Contract


@dataclass(frozen=True, slots=True)
class Plan:
    """The ragged structure of a definition; names are of inputs, trees give sizes."""

    roles: dict[str, Role]
    pointers: tuple[Pointer, ...]
    pages: tuple[str, ...]  # page ids, page tables
    last_page: str | None
    page_size: ast.expr | None
    lengths: tuple[str, ...]
    batch: ast.expr | None  # how many sequences there are
    caches: dict[str, int | None]  # tensors whose leading axis page ids point into: the axis of a page's slots
    shared: bool  # sequences may share pages: the definition says so, or nothing is written into them
    rereads: bool  # nothing is: a page may come twice in a sequence too
    promises: Promises

    def of(self, kind: str) -> list[str]:
        """Return the inputs that have this role."""
        return [name for name, role in self.roles.items() if role.kind == kind]

    def pointer(self, *groups: str) -> Pointer | None:
        """Return the first pointer array of one of these groups."""
        return next((p for group in groups for p in self.pointers if p.group == group), None)


@lru_cache(maxsize=64)
def plan_of(contract: Contract) -> Plan:
    """Find the ragged structure of a definition."""
    roles = all_roles(contract)
    pages = tuple(name for name, role in roles.items() if role.kind in {"page_ids", "page_table"})
    last_page = next((name for name, role in roles.items() if role.kind == "last_page_len"), None)
    lengths = tuple(name for name, role in roles.items() if role.kind == "seq_lens" and role.axis is None)
    limits = [limit for name in pages if (limit := roles[name].limit) is not None]
    pool = ast.unparse(limits[0]) if limits else None
    size = page_size(contract, pool) if pool else find_axis(contract, "page") if pages else None
    promises = stated_promises(contract.definition)
    pointers = pointers_of_roles(contract, roles, pages, last_page)
    caches = _caches(contract, pool)
    rereads = pages_are_read_only(contract, caches, pool, words_of(contract.definition))
    return Plan(
        roles, pointers, pages, last_page, size, lengths,
        _batch(contract, roles, {p.name for p in pointers if p.open}, last_page, lengths), caches,
        shared=rereads or promises.shared,
        rereads=rereads,
        promises=promises,
    )  # fmt: skip


def _caches(contract: Contract, pool: str | None) -> dict[str, int | None]:
    caches: dict[str, int | None] = {}
    for name in pools(contract).get(pool or "", ()):
        trees = contract.dims[name] or ()
        if ast.unparse(trees[0]) != pool:  # of layers
            continue
        slots = [i for i, tree in enumerate(trees) if i and counts_slots(contract, ast.unparse(tree))]
        caches[name] = slots[0] if slots else None
    return caches


def _batch(
    contract: Contract, roles: dict[str, Role], starts: set[str], last_page: str | None, lengths: tuple[str, ...]
) -> ast.expr | None:
    for name, role in roles.items():
        trees = contract.dims[name]
        if (role.kind == "indptr" or name in starts) and trees:
            return trees[0] if name in starts else ast.BinOp(trees[0], ast.Sub(), ast.Constant(1))
    tables = [name for name, role in roles.items() if role.kind == "page_table"]
    for owner in (last_page, *lengths, *tables):
        trees = contract.dims[owner] if owner else None
        if trees and owner in lengths and any(len(contract.dims[name] or ()) == len(trees) + 1 > 2 for name in tables):  # noqa: PLR2004
            return reduce(lambda left, right: ast.BinOp(left, ast.Mult(), right), trees)  # one for each line of a table
        if trees:
            return trees[0]
    return None
