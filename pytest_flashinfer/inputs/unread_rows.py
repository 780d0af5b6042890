"""Rows that nobody reads: where a contract says that they hold arbitrary data, they hold NaN.

Those are rows of a table that no index names, and rows beside an id that means padding.
"""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.dtypes import FLOAT8, as_numbers
from pytest_flashinfer.inputs.roles.float_roles import FREE
from pytest_flashinfer.inputs.roles.nonfinite import unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

LOOK_UP: Final = frozenset({"sparse", "slots", "token_ids", "index"})
_MARK: Final = re.compile("ignore|pad")
_ANYTHING: Final = re.compile(r"(padd|ignored|unused|-1)[^.;]{0,40}(arbitrary|garbage|undefined|nan\b)")
# Said of a whole definition, where other things may be arbitrary as well.
_NAN: Final = re.compile(r"(padd|ignored|unused|dropped|-1)[^.;]{0,160}(?<!no )(\bnans?\b|uninitiali[sz]ed)")


def tables(contract: Contract, plan: Plan) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the float inputs that ids look rows up in: how many leading axes count the rows, and the ids' names.

    Only where the contract says what it does of such rows. A table that one index points into as a whole and another by
    pages is none: what is read of it is known elsewhere.
    """
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    if not plan.promises.unnamed:
        return found
    for name, role in plan.roles.items():
        if role.kind not in LOOK_UP or role.limit is None:
            continue
        free = (each for each, other in plan.roles.items() if other.kind in FREE)
        for table in free:
            leading = leading_axes(contract.dims[table] or (), ast.unparse(role.limit))
            if leading and not (plan.pages and table in plan.caches):
                found[table] = leading, (*found.get(table, (0, ()))[1], name)
    return found


def padded(contract: Contract, plan: Plan) -> dict[str, str]:
    """Return the float inputs that have a row for each of some ids, with those: rows without an id may hold anything.

    Only those whose own description says so, or the definition's in plain words, and none asks for finite values.
    """
    whole = (contract.definition.description or "").lower()
    all_of_them = _NAN.search(whole) is not None and "finite" not in whole
    ids = {
        ast.unparse(contract.dims[name][0]): name  # type: ignore[index]  # it has one axis
        for name, role in plan.roles.items()
        if role.kind in LOOK_UP and role.unused and len(contract.dims[name] or ()) == 1
    }
    found: dict[str, str] = {}
    for name, role in plan.roles.items() if ids else ():
        text, trees = (contract.definition.inputs[name].description or "").lower(), contract.dims[name]
        if trees and role.kind in FREE and (all_of_them or _ANYTHING.search(text)) and "finite" not in text:
            owner = ids.get(ast.unparse(trees[0]))
            if owner is not None:
                found[name] = owner
    return found


def leading_axes(trees: tuple[ast.expr, ...], limit: str) -> int:
    """Return how many leading axes have as many rows as `limit` says: one, or two that are pages and their slots."""
    sizes = [ast.unparse(tree) for tree in trees]
    if len(sizes) < 2:  # noqa: PLR2004 - a row of something
        return 0
    return 1 if sizes[0] == limit else 2 if " * ".join(sizes[:2]) == limit else 0


def poison(contract: Contract, plan: Plan, tensors: Mapping[str, object]) -> None:
    """Overwrite, in place, the rows that no id names, or only ids that mean padding, and those beside such an id."""
    padding = [n for name, n in tensors.items() if isinstance(n, int) and _MARK.search(name)]
    for table, (leading, names) in tables(contract, plan).items():
        x = tensors.get(table)
        if not isinstance(x, torch.Tensor) or x.dtype in FLOAT8 or not x.numel():
            continue
        rows = x.flatten(0, leading - 1)
        unread = torch.ones(len(rows), dtype=torch.bool, device=x.device)
        for ids in (tensors.get(name) for name in names):
            if isinstance(ids, torch.Tensor):
                unread[_named(ids, padding, len(rows)).to(x.device)] = False
        _overwrite(rows, unread, unreadable(contract, table, x.dtype))
    for name, owner in padded(contract, plan).items():
        x, marks = tensors.get(name), tensors.get(owner)
        if isinstance(x, torch.Tensor) and isinstance(marks, torch.Tensor) and x.dtype not in FLOAT8:
            padding_rows = torch.isin(as_numbers(marks), torch.tensor(plan.roles[owner].unused, device=marks.device))
            _overwrite(x, padding_rows, math.nan)


def _overwrite(rows: torch.Tensor, which: torch.Tensor, value: float) -> None:
    rows.masked_fill_(which.view(-1, *[1] * (rows.dim() - 1)), value)


def _named(ids: torch.Tensor, padding: list[int], count: int) -> torch.Tensor:
    flat = ids.flatten().long()
    for value in padding:
        flat = flat[flat != value]
    return flat[(flat >= 0) & (flat < count)]
