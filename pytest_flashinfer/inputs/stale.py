"""What a kernel may read but must not matter, slots that nothing points at and values of no weight, is made to show."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs import unread_rows
from pytest_flashinfer.inputs.dtypes import FLOAT8, far_off
from pytest_flashinfer.inputs.floats import scores
from pytest_flashinfer.inputs.integers import overwritten_slots
from pytest_flashinfer.inputs.roles.float_roles import FREE
from pytest_flashinfer.inputs.roles.nonfinite import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.recipe import Recipe

POISON: Final = frozenset({"stale_nan", "stale_big"})


def live_slots(plan: Plan, tensors: Mapping[str, object], pages: int, slots: int) -> torch.Tensor | None:
    """Return which slots of which pages some sequence reads, as bools [pages, slots]; `None` if nothing tells."""
    live = torch.zeros((pages, slots), dtype=torch.bool)
    for name in plan.pages:
        ids = tensors.get(name)
        if not isinstance(ids, torch.Tensor):
            return None
        lengths = _lengths(plan, tensors, ids, slots)
        if lengths is None:
            return None
        for row, length in lengths:
            for i, page in enumerate(row[: -(-length // slots)]):
                if 0 <= page < pages:
                    live[page, : min(slots, length - i * slots)] = True
    return live


def _appended(contract: Contract, plan: Plan, tensors: Mapping[str, object], slots: int) -> Iterator[tuple[int, int]]:
    """Yield page and slot of each row that is appended to a cache: what was there before is read by nobody."""
    names = [*plan.of("batch_ids"), *plan.of("positions")]
    found = [x for x in map(tensors.get, names) if isinstance(x, torch.Tensor) and x.dim() == 1]
    if len(found) != 2 or not all(_has_rows(contract, plan, name) for name in names):  # noqa: PLR2004 - one of each
        return
    for name in plan.pages:
        ids = tensors.get(name)
        rows = _lengths(plan, tensors, ids, slots) if isinstance(ids, torch.Tensor) else None
        for sequence, position in zip(*(x.tolist() for x in found), strict=True):
            pages = rows[sequence][0] if rows and 0 <= sequence < len(rows) else []
            if 0 <= position // slots < len(pages):
                yield pages[position // slots], position % slots


def _has_rows(contract: Contract, plan: Plan, ids: str) -> bool:
    """Whether there are values to append, a row for each id."""
    own = [ast.unparse(tree) for tree in contract.dims[ids] or ()]
    values = (name for name, role in plan.roles.items() if role.kind in FREE and name not in plan.caches)
    return any([ast.unparse(tree) for tree in (contract.dims[name] or ())[:1]] == own for name in values)


def _lengths(
    plan: Plan, tensors: Mapping[str, object], ids: torch.Tensor, slots: int
) -> list[tuple[list[int], int]] | None:
    """Return the pages and the number of tokens of each sequence."""
    if ids.dim() == 2:  # noqa: PLR2004 - a table
        name = next((n for n in plan.lengths if plan.roles[n].group != "q"), next(iter(plan.lengths), None))
        lengths = tensors.get(name or "")
        if not isinstance(lengths, torch.Tensor):
            return None
        return list(zip(ids.tolist(), lengths.flatten().tolist(), strict=False))
    pointer = plan.pointer("kv", "plain")
    ends = tensors.get(pointer.name) if pointer else None
    if ids.dim() != 1 or not isinstance(ends, torch.Tensor):
        return None
    last = tensors.get(plan.last_page or "")
    bounds, flat = ends.tolist(), ids.tolist()
    if pointer is not None and pointer.open:
        bounds = [0, *bounds] if pointer.ends else [*bounds, len(flat)]
    tails = last.tolist() if isinstance(last, torch.Tensor) else [slots] * (len(bounds) - 1)
    return [
        (flat[a:b], (b - a - 1) * slots + tail if b > a else 0)
        for a, b, tail in zip(bounds, bounds[1:], tails, strict=False)
    ]


def overwritten(contract: Contract, plan: Plan) -> frozenset[str]:
    """Return the inputs that `poison` overwrites by what indices name; where they are given, they stay as they are."""
    rows = unread_rows.tables(contract, plan).keys() | unread_rows.padded(contract, plan).keys()
    return frozenset(plan.caches) | rows | overwritten_slots.pools(contract, plan).keys()


def poison(contract: Contract, plan: Plan, tensors: Mapping[str, object], recipe: Recipe) -> None:
    """Overwrite, in place, what must not matter: with NaN, or with values far from the others.

    That is what no sequence reads in the caches, what appended rows replace there, rows that nobody reads, and values
    of states without weight.
    """
    if recipe.structure == "stale_nan":
        unread_rows.poison(contract, plan, tensors)
        overwritten_slots.poison(contract, plan, tensors)
    if recipe.family == "neginf" and plan.promises.loose:
        _weightless(contract, plan, tensors)
    if recipe.structure in POISON:
        _unread(contract, plan, tensors, recipe.structure)


def _weightless(contract: Contract, plan: Plan, tensors: Mapping[str, object]) -> None:
    """Put NaN where scores of -inf stand beside values: an empty state is that, and what it holds is arbitrary."""
    for score in scores.inputs(plan):
        weights, dims = tensors.get(score), contract.dims[score] or ()
        leading = [ast.unparse(tree) for tree in dims]
        for name, values in tensors.items():
            role, own = plan.roles.get(name), [ast.unparse(tree) for tree in contract.dims.get(name) or ()]
            if role is None or role.kind not in FREE or len(own) <= len(leading) or own[: len(leading)] != leading:
                continue
            if isinstance(weights, torch.Tensor) and isinstance(values, torch.Tensor) and values.dtype not in FLOAT8:
                none = (weights == -math.inf).view(*weights.shape, *[1] * (values.dim() - weights.dim()))
                values.masked_fill_(none, unreadable(contract, name, values.dtype))


def _unread(contract: Contract, plan: Plan, tensors: Mapping[str, object], structure: str) -> None:
    for name, axis in plan.caches.items():
        cache = tensors.get(name)
        if not isinstance(cache, torch.Tensor) or not cache.is_floating_point() or cache.numel() == 0:
            continue
        slots = cache.shape[axis] if axis is not None else 1
        live = live_slots(plan, tensors, cache.shape[0], slots)
        if live is None:
            continue
        for page, slot in _appended(contract, plan, tensors, slots):
            live[page, slot] = False
        value = unreadable(contract, name, cache.dtype) if structure == "stale_nan" else far_off(cache.dtype)
        dead = ~live.to(cache.device)
        view = [cache.shape[0]] + [1] * (cache.dim() - 1)
        if axis is not None:
            view[axis] = slots
        _fill(cache, dead.view(view), value)


def _fill(cache: torch.Tensor, mask: torch.Tensor, value: float) -> None:
    """Overwrite what the mask says; 8-bit floats by their bits, which not every device can fill otherwise."""
    if cache.dtype not in FLOAT8:
        cache.masked_fill_(mask, value)
        return
    code = int(torch.tensor(value).to(cache.dtype).view(torch.uint8))
    cache.view(torch.uint8).masked_fill_(mask, code)
