"""One value among many is another one: what tells answers that are kept by some of the values, whichever these are."""

from __future__ import annotations

import ast
import math
from random import Random
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs import layout
from pytest_flashinfer.inputs.dtypes import FLOAT8, largest
from pytest_flashinfer.inputs.integers import unused
from pytest_flashinfer.inputs.integers.masks import flipped
from pytest_flashinfer.inputs.integers.overwritten_slots import pools
from pytest_flashinfer.inputs.integers.rearrange import movable, setting_of, targets
from pytest_flashinfer.inputs.roles.float_roles import DATA, ROTARY
from pytest_flashinfer.inputs.stale import live_slots
from pytest_flashinfer.inputs.unread_rows import LOOK_UP, leading_axes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Setting
    from pytest_flashinfer.inputs.plan import Plan

_TIMES: Final = 4.0  # the largest value: one as large as the others may be lost in a long sum's bound
_ROOM: Final = 64.0  # below the largest of the dtype, for sums
_TRIES: Final = 16
_SOME: Final = 1 << 20  # elements tell how large values are
_FREE: Final = DATA | {"weight"}
_OF_ROWS: Final = ROTARY | {"probs", "log_probs", "bits"}  # one value says what the others of its row have to be
_IDS: Final = frozenset({"page_ids", "page_table", "slots", "sparse", "token_ids", "index"})
_APART: Final = frozenset({"page_ids", "page_table", "slots"})  # no two are alike, unless they are shared


def one_value(
    contract: Contract, plan: Plan, inputs: Mapping[str, Any], names: Sequence[str], seed: str
) -> dict[str, torch.Tensor]:
    """Return one of the inputs `names` with another value somewhere, where somebody reads it if that is known.

    Where values are free it is far above all others; else the one of them that is farthest.
    """
    rng = Random(seed)  # noqa: S311 - not for secrets
    names = [name for name in names if plan.roles[name].kind not in _OF_ROWS]
    for name in rng.sample(names, len(names)):
        old = inputs[name]
        if plan.roles[name].kind == "mask":
            mask = flipped(old, rng)
            if mask is not None:
                return {name: mask}
            continue
        flat = old.clone(memory_format=torch.contiguous_format).view(-1)
        flat = flat.view(torch.uint8) if flat.dtype is torch.float4_e2m1fn_x2 else flat  # as torch computes with them
        for _ in range(_TRIES):
            place = _place(contract, plan, inputs, name, rng)
            value = None if place is None else _other(flat, place, free=plan.roles[name].kind in _FREE)
            if place is not None and value is not None:
                raw = flat.view(torch.uint8) if flat.dtype in FLOAT8 else flat
                raw[place] = value.view(torch.uint8) if flat.dtype in FLOAT8 else value
                return {name: flat.view(old.dtype).view(old.shape)}
    return {}


def _other(flat: torch.Tensor, place: int, *, free: bool) -> torch.Tensor | None:
    """Return another value for a place, or `None` where there is none."""
    old, some = float(flat[place]), flat[:: max(1, flat.numel() // _SOME)].to(torch.float64)
    known = some[some.isfinite()]
    if not math.isfinite(old) or not known.numel():
        return None
    low, high = (float(n) for n in known.aminmax())
    if free and flat.is_floating_point():
        most = max(-low, high)
        size = min(_TIMES * (most or 1.0), max(most, largest(flat.dtype) / _ROOM))
        value = torch.tensor(size if old < size else -size).to(flat.dtype)  # what is below zero may count for nothing
    else:
        value = torch.tensor(low if old - low > high - old else high).to(flat.dtype)
    value = value.to(flat.device)
    return None if float(value) == old else value


def _place(contract: Contract, plan: Plan, inputs: Mapping[str, Any], name: str, rng: Random) -> int | None:
    """Return a place in a tensor: in rows that ids name, where ids name some; `None` where nobody reads any."""
    x, count = inputs[name], inputs[name].numel()
    if name in plan.caches:
        axis = plan.caches[name]
        live = live_slots(plan, inputs, x.shape[0], 1 if axis is None else x.shape[axis])
        if live is not None:
            found = live.nonzero().tolist()
            return _within(x.shape, axis, rng.choice(found), rng) if found else None
    if name not in pools(contract, plan):
        for ids, role in plan.roles.items():
            given, dims = inputs.get(ids), contract.dims[name] or ()
            known = role.kind in LOOK_UP and role.limit is not None and isinstance(given, torch.Tensor)
            leading = leading_axes(dims, ast.unparse(role.limit)) if known and role.limit is not None else 0
            if leading and isinstance(given, torch.Tensor):
                rows = math.prod(x.shape[:leading])
                named = [n for n in given.flatten().tolist() if 0 <= n < rows]
                return rng.choice(named) * (count // rows) + rng.randrange(count // rows) if named else None
    return rng.randrange(count)


def _within(shape: Sequence[int], axis: int | None, live: Sequence[int], rng: Random) -> int:
    """Return a place in a slot of a page, which are `live`."""
    flat = 0
    for number, size in enumerate(shape):
        flat = flat * size + (live[0] if number == 0 else live[1] if number == axis else rng.randrange(size))
    return flat


def one_id(
    definition: Definition, axes: Mapping[str, Any], inputs: Mapping[str, Any], seed: int,
    stored: Collection[str] = (),
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Return an index tensor in which one id is another one that it may be; nothing where there is none.

    Only of tensors that alone point at what they point at. What is distinct stays so.
    """
    setting, known = setting_of(definition, axes, inputs, seed)
    names = [
        name for name in movable(setting, stored) if setting.plan.roles[name].kind in _IDS and _alone(setting, name)
    ]
    for name in setting.rng.sample(names, len(names)):
        old, choices = setting.given[name], targets(setting, [name])
        places = torch.isin(old.flatten().long(), choices).nonzero().flatten().tolist()
        if not places or len(choices) < 2:  # noqa: PLR2004 - there is another one
            continue
        place = setting.rng.choice(places)
        new = old.clone()
        taken = old.flatten().long() if setting.plan.roles[name].kind in _APART else _row(old, place)
        free = choices[~torch.isin(choices, taken)]
        if len(free):
            new.view(-1)[place] = free[setting.rng.randrange(len(free))]
        else:
            unlike = [each for each in places if int(old.view(-1)[each]) != int(old.view(-1)[place])]
            other = setting.rng.choice(unlike) if unlike else place
            new.view(-1)[[place, other]] = old.view(-1)[[other, place]]
        if not torch.equal(new, old) and unused.hold(setting, name, new):
            return {name: layout.like(known[name], new.to(known[name]))}
    return {}


def _row(ids: torch.Tensor, place: int) -> torch.Tensor:
    width = ids.shape[-1] if ids.dim() > 1 else 1
    return ids.flatten().long()[place // width * width : (place // width + 1) * width]


def _alone(setting: Setting, name: str) -> bool:
    """Whether no other index tensor points at the same rows."""
    limits = [role.limit for other, role in setting.plan.roles.items() if other != name and other in setting.given]
    mine = setting.plan.roles[name].limit
    if mine is None:  # a number, and no place in anything that is known
        return setting.plan.roles[name].kind == "index"
    return ast.unparse(mine) not in {ast.unparse(each) for each in limits if each is not None}
