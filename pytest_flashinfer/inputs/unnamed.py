"""Rows of tables that no index names: where a contract says that they hold arbitrary data, they hold NaN."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.dtypes import FLOAT8
from pytest_flashinfer.inputs.float_roles import FREE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_LOOK_UP: Final = frozenset({"sparse", "slots", "token_ids", "index"})
_MARK: Final = re.compile("ignore|pad")


def tables(contract: Contract, plan: Plan) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the float inputs that ids look rows up in: how many leading axes count the rows, and the ids' names.

    A table that one index points into as a whole and another by pages is none: what is read of it is known elsewhere.
    """
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for name, role in plan.roles.items():
        if role.kind not in _LOOK_UP or role.limit is None:
            continue
        free = (each for each, other in plan.roles.items() if other.kind in FREE)
        for table in free:
            leading = _leading(contract.dims[table] or (), ast.unparse(role.limit))
            if leading and not (plan.pages and table in plan.caches):
                found[table] = leading, (*found.get(table, (0, ()))[1], name)
    return found


def _leading(trees: tuple[ast.expr, ...], limit: str) -> int:
    """Return how many leading axes have as many rows as `limit` says: one, or two that are pages and their slots."""
    sizes = [ast.unparse(tree) for tree in trees]
    if len(sizes) < 2:  # noqa: PLR2004 - a row of something
        return 0
    return 1 if sizes[0] == limit else 2 if " * ".join(sizes[:2]) == limit else 0


def poison(contract: Contract, plan: Plan, tensors: Mapping[str, object]) -> None:
    """Overwrite, in place, the rows that no id names, or only ids that mean padding."""
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
        rows.masked_fill_(unread.view(-1, *[1] * (rows.dim() - 1)), math.nan)


def _named(ids: torch.Tensor, padding: list[int], count: int) -> torch.Tensor:
    flat = ids.flatten().long()
    for value in padding:
        flat = flat[flat != value]
    return flat[(flat >= 0) & (flat < count)]
