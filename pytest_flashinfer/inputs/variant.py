"""New contents for inputs whose structure stays: what tells a kernel that computes from one that remembers."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.inputs import layout
from pytest_flashinfer.inputs.axes import shape_of
from pytest_flashinfer.inputs.content import BYTE_KINDS, content_bytes
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import is_float
from pytest_flashinfer.inputs.elements import mend
from pytest_flashinfer.inputs.families import SPECIAL
from pytest_flashinfer.inputs.float_roles import ROTARY
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.stale import poison
from pytest_flashinfer.inputs.values import Source, Want, float_tensor, not_finite

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

KINDS: tuple[str, ...] = ("fresh", "same_ends", "permuted")
_TRIES = 16


def variant(  # noqa: PLR0913 - inputs, what they are for, and how to change them
    inputs: Mapping[str, Any], definition: Definition, kind: str, generator: torch.Generator, *,
    recipe: Recipe | None = None, keep: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return inputs like `inputs` with other values; index tensors, scalars and strides stay, as do those in `keep`.

    `fresh`: drawn anew, by the family of `recipe` where one is given. `same_ends`: drawn anew, but equal to before
    in the first, the middle and the last element of every tensor. `permuted`: in every tensor two unequal elements of
    one row change places, so that sums and sets of values stay. A table of cosines and sines stays one: it is drawn
    anew instead, and whole rows of it are equal to before. Raises ValueError for another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"variant {kind!r} is none of {', '.join(KINDS)}")
    contract = contract_of(definition)
    plan, recipe = plan_of(contract), recipe or Recipe(0)
    seed = int(torch.randint(1 << 31, (1,), generator=generator, device=generator.device))
    changed = dict(inputs)
    for name, old in inputs.items():
        role = plan.roles.get(name)
        if name in keep or role is None or not isinstance(old, torch.Tensor) or not old.dim() or not old.numel():
            continue
        if role.kind in BYTE_KINDS or (is_float(contract.dtype(name)) and role.kind != "zeros"):
            permuted = kind == "permuted" and role.kind not in ROTARY
            new = _permuted(old, f"{seed}/{name}") if permuted else _drawn(contract, plan, name, old, recipe, seed)
            changed[name] = layout.like(old, new)
    if kind != "permuted":
        poison(plan, {name: value for name, value in changed.items() if name not in keep}, recipe.structure)
    if kind == "same_ends":
        for name, old in inputs.items():
            if changed[name] is not old:
                _copy_ends(changed[name], old, rows=plan.roles[name].kind in ROTARY)
    drawn = {name for name, value in changed.items() if value is not inputs[name]}
    mend(contract, plan, {**_sizes(contract, inputs), **changed}, drawn)
    return changed


def _drawn(  # noqa: PLR0913, PLR0917 - one tensor in all its parts
    contract: Contract, plan: Plan, name: str, old: torch.Tensor, recipe: Recipe, seed: int
) -> torch.Tensor:
    source, role = Source(seed, old.device), plan.roles[name]
    if role.kind in BYTE_KINDS:
        return content_bytes(role.kind, tuple(old.shape), old.dtype, source.own(name))
    fan_in = shape_of((role.axis,), _sizes(contract, {name: old}))[0] if role.axis is not None else None
    special = recipe.family in SPECIAL and name not in not_finite(plan)
    want = Want(name, role.kind, tuple(old.shape), old.dtype, fan_in, role.base)
    return float_tensor(want, "normal" if special else recipe.family, source)


def _sizes(contract: Contract, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of axes that the shapes of these inputs show."""
    sizes = dict(contract.constants)
    for name, value in inputs.items():
        shape = contract.definition.inputs[name].shape
        if isinstance(value, torch.Tensor) and shape:
            sizes.update({axis: n for axis, n in zip(shape, value.shape, strict=False) if axis in contract.sizes})
    return sizes


def _permuted(old: torch.Tensor, seed: str) -> torch.Tensor:
    """Return a copy in which two unequal elements of one row have changed places, where a row has two."""
    new, rng = old.clone(memory_format=torch.contiguous_format), Random(seed)  # noqa: S311 - not for secrets
    raw = new.view(torch.uint8) if new.element_size() == 1 else new
    rows = raw.view(-1, raw.shape[-1])
    for _ in range(_TRIES):
        row, first = rng.randrange(rows.shape[0]), rng.randrange(rows.shape[1])
        unequal = (rows[row] != rows[row, first]).nonzero().flatten().tolist()
        if unequal:
            second = rng.choice(unequal)
            rows[row, [first, second]] = rows[row, [second, first]]
            break
    return new


def _copy_ends(new: torch.Tensor, old: torch.Tensor, *, rows: bool) -> None:
    """Copy the first, the middle and the last element, or the `rows` that they are in."""
    for flat in {0, old.numel() // 2, old.numel() - 1}:
        place, rest = [], flat
        for n in reversed(old.shape):
            place.append(rest % n)
            rest //= n
        index = tuple(reversed(place))[: old.dim() - rows]
        new[index] = old[index]
