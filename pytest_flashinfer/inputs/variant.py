"""New contents for inputs whose structure stays: what tells a kernel that computes from one that remembers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.inputs import layout
from pytest_flashinfer.inputs.constraints.choices import choose
from pytest_flashinfer.inputs.constraints.elements import mend
from pytest_flashinfer.inputs.constraints.limits import limits, readable
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import UNSIGNED, is_float
from pytest_flashinfer.inputs.floats.values import Source, Want, family_of, float_tensor
from pytest_flashinfer.inputs.integers.masks import MASKS, moved
from pytest_flashinfer.inputs.one_changed import one_value
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.roles.float_roles import ROTARY
from pytest_flashinfer.inputs.roles.packed_integers import BYTE_KINDS, content_bytes
from pytest_flashinfer.inputs.roles.stated_values import powers_of_two
from pytest_flashinfer.inputs.sizes.axes import shape_of, solve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.constraints.facts import Rule
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

ONE = "one_changed"
KINDS: tuple[str, ...] = ("fresh", "same_ends", "permuted", ONE)
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # in which elements can change places
_FAMILY = "normal"  # of new contents, whatever that of the first ones
_SWAPS = 16  # tries to find two unequal elements
_TRIES = 4  # contents that are drawn before those that break a constraint stay as they were


@dataclass(frozen=True, slots=True)
class _Changing:
    """What new contents of `names` are made from: the old inputs, and the sizes and scalars that limits speak of."""

    contract: Contract
    plan: Plan
    inputs: Mapping[str, Any]
    names: tuple[str, ...]
    env: Mapping[str, Any]


def variant(  # noqa: PLR0913 - inputs, what they are for, and how to change them
    inputs: Mapping[str, Any], definition: Definition, axes: Mapping[str, int], kind: str, generator: torch.Generator,
    *, keep: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return inputs like `inputs` with other values; index tensors, scalars and strides stay, as do those in `keep`.

    `fresh`: drawn anew. `same_ends`: drawn anew, but equal to before
    in the first, the middle and the last element of every tensor. `permuted`: in every tensor two unequal elements of
    one row change places, so that sums and sets of values stay. A table of cosines and sines stays one: it is drawn
    anew instead, and whole rows of it are equal to before. `one_changed`: one element of one tensor is another one, by
    which an answer changes much; no table changes so. What a mask lets through goes elsewhere in its row. They satisfy
    each constraint that `inputs` satisfies; what cannot be changed so in a few tries stays. Raises ValueError for
    another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"variant {kind!r} is none of {', '.join(KINDS)}")
    contract = contract_of(definition)
    plan = plan_of(contract)
    names = tuple(name for name in varying(inputs, definition) if name not in keep)
    changing = _Changing(contract, plan, inputs, names, _numbers(contract, axes, inputs))
    for _ in range(_TRIES):
        changed = _changed(changing, kind, generator)
        broken = _broken(changing, changed)
        if not broken:
            return changed
    while broken:
        _put_back(changing, changed, frozenset().union(*(rule.names for rule in broken)))
        broken = _broken(changing, changed)
    return changed


def varying(inputs: Mapping[str, Any], definition: Definition) -> list[str]:
    """Return the inputs whose values a variant changes."""
    contract = contract_of(definition)
    plan = plan_of(contract)
    return [name for name, old in inputs.items() if _varies(contract, plan, name, old)]


def breaks(
    before: Mapping[str, Any], after: Mapping[str, Any], definition: Definition, axes: Mapping[str, int]
) -> bool:
    """Say whether inputs break a constraint that others, from which they were made, satisfy."""
    contract = contract_of(definition)
    names = tuple(name for name, value in after.items() if value is not before[name])
    env = _numbers(contract, axes, after)
    return bool(_broken(_Changing(contract, plan_of(contract), before, names, env), after))


def _numbers(contract: Contract, axes: Mapping[str, int], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all sizes, and the scalars among the inputs."""
    scalars = {n: v for n, v in inputs.items() if not (isinstance(v, torch.Tensor) and v.dim())}
    return {**solve(contract, axes), **{n: v.item() if isinstance(v, torch.Tensor) else v for n, v in scalars.items()}}


def _varies(contract: Contract, plan: Plan, name: str, old: Any) -> bool:
    role = plan.roles.get(name)
    if role is None or not isinstance(old, torch.Tensor) or not old.dim() or not old.numel():
        return False
    if is_float(contract.dtype(name)):
        return role.kind != "zeros"
    return role.kind in BYTE_KINDS | MASKS


def _changed(changing: _Changing, kind: str, generator: torch.Generator) -> dict[str, Any]:
    """Return inputs with other contents, which constraints between tensors may still forbid."""
    inputs, plan = changing.inputs, changing.plan
    seed = int(torch.randint(1 << 31, (1,), generator=generator, device=generator.device))
    new = one_value(changing.contract, plan, inputs, changing.names, f"{seed}/one") if kind == ONE else {}
    new = {name: layout.like(inputs[name], made) for name, made in new.items()}
    for name in changing.names if kind != ONE else ():
        new[name] = layout.like(inputs[name], _other(changing, name, kind, seed))
    changed = {**inputs, **new}
    if kind == "same_ends":
        for name, values in new.items():
            if plan.roles[name].kind in MASKS:  # which have them
                continue
            _copy_ends(values, inputs[name], rows=plan.roles[name].kind in ROTARY)
    mend(changing.contract, plan, {**changing.env, **changed}, set(new))
    choose(changing.contract, plan, {**changing.env, **changed}, set(new))
    return changed


def _other(changing: _Changing, name: str, kind: str, seed: int) -> torch.Tensor:
    """Return other contents of one tensor."""
    old, role = changing.inputs[name], changing.plan.roles[name].kind
    if kind == "permuted" and role not in ROTARY and role != "bits":
        return _permuted(old, f"{seed}/{name}")
    if role in MASKS:
        return moved(old, role, Source(seed, torch.device("cpu")).own(name), _ends(old) if kind == "same_ends" else ())
    return _drawn(changing, name, seed)


def _broken(changing: _Changing, changed: Mapping[str, Any]) -> list[Rule]:
    """Return the constraints that the new contents break, and that the old ones do not."""
    rules = [rule for rule in changing.contract.reading.data if not rule.names.isdisjoint(changing.names)]
    read = frozenset[str]().union(*(rule.names for rule in rules)) & changed.keys()
    new = {**changing.env, **readable({name: changed[name] for name in read})}
    failing = [rule for rule in rules if rule.fails(new)]
    old = {**changing.env, **readable({name: changing.inputs[name] for name in read if failing})}
    return [rule for rule in failing if not rule.fails(old)]


def _put_back(changing: _Changing, changed: dict[str, Any], names: Collection[str]) -> None:
    """Undo the change of some inputs: of all tables of cosines and sines, where of one, for they are one table."""
    tables = [name for name in changing.names if changing.plan.roles[name].kind in ROTARY]
    names = {*names, *(tables if any(name in names for name in tables) else ())}
    changed.update({name: changing.inputs[name] for name in changing.names if name in names})


def _drawn(changing: _Changing, name: str, seed: int) -> torch.Tensor:
    """Return new contents of one tensor, within the limits that its first ones had."""
    contract, old, env = changing.contract, changing.inputs[name], changing.env
    source, role = Source(seed, old.device), changing.plan.roles[name]
    if role.kind in BYTE_KINDS:
        return content_bytes(role.kind, tuple(old.shape), old.dtype, source.own(name), *limits(contract, name, env))
    fan_in = shape_of((role.axis,), env)[0] if role.axis is not None else None
    powers = powers_of_two(contract.definition, name)
    want = Want(name, role.kind, tuple(old.shape), old.dtype, fan_in, role.base, powers)
    return float_tensor(want, family_of(name, _FAMILY, contract, changing.plan), source)


def _permuted(old: torch.Tensor, seed: str) -> torch.Tensor:
    """Return a copy in which two unequal elements of one row have changed places, where a row has two."""
    new, rng = old.clone(memory_format=torch.contiguous_format), Random(seed)  # noqa: S311 - not for secrets
    raw = new.view(_WORDS[new.itemsize]) if new.itemsize == 1 or new.dtype in UNSIGNED else new
    rows = raw.view(-1, raw.shape[-1])
    for _ in range(_SWAPS):
        row, first = rng.randrange(rows.shape[0]), rng.randrange(rows.shape[1])
        unequal = (rows[row] != rows[row, first]).nonzero().flatten().tolist()
        if unequal:
            second = rng.choice(unequal)
            rows[row, [first, second]] = rows[row, [second, first]]
            break
    return new


def _copy_ends(new: torch.Tensor, old: torch.Tensor, *, rows: bool) -> None:
    """Copy the first, the middle and the last element, or the `rows` that they are in."""
    for flat in _ends(old):
        place, rest = [], flat
        for n in reversed(old.shape):
            place.append(rest % n)
            rest //= n
        index = tuple(reversed(place))[: old.dim() - rows]
        new[index] = old[index]


def _ends(old: torch.Tensor) -> set[int]:
    return {0, old.numel() // 2, old.numel() - 1}
