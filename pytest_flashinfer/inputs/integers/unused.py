"""Entries of index tensors that point at nothing: which values mark them, and which entries they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import ConstraintError
from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.dtypes import torch_dtype
from pytest_flashinfer.inputs.roles.subject import PADS
from pytest_flashinfer.inputs.scalars import usual_values
from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flashinfer.inputs.constraints.facts import Rule
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Setting
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.roles.subject import Role

# The last entries, as in a batch that is padded to the size of a captured graph, and all entries.
STRUCTURES: Final = ("padded_tail", "all_padded")
_KINDS: Final = frozenset({"slots", "token_ids", "index", "positions", "expert_ids", "batch_ids"})
_DISPENSABLE: Final = frozenset({"slots", "token_ids", "index"})  # of these all may be unused
_PLAIN: Final = frozenset({"uniform", "identity"})
_SHARE: Final = 5  # at most one entry in five is unused, where it is not the structure: what a call costs stays alike
_MOST: Final = 1 << 12
_WITH_A_ROW: Final = 2  # of the five ways to leave entries unused


def occurs(contract: Contract, plan: Plan) -> bool:
    """Say whether some input may have entries that are not used, besides the tails of rows."""
    return any(
        role.kind in _KINDS
        and (role.unused or _named(contract, name) or name in contract.reading.facts.others or _pads(contract, name))
        for name, role in plan.roles.items()
    )


def dispensable(role: Role) -> bool:
    """Say whether there may be nothing that ids of this role could point at."""
    return bool(role.unused) and role.kind in _DISPENSABLE


def mark(setting: Setting, name: str, ids: torch.Tensor) -> Sequence[int]:
    """Overwrite some entries of `ids` by what marks unused ones, if the contract has that; return their places.

    None, one or several of them, and in some cases a row as a whole, as the seed says, so that cases in a row have
    each; the structures of this module aside. Only values with which every constraint holds that holds without them.
    """
    for places in (_with_a_row(setting, ids), _places(setting, ids.numel())):
        marked = _mark(setting, name, ids, places) if places else ()
        if marked:
            return marked
    return ()


def _mark(setting: Setting, name: str, ids: torch.Tensor, places: Sequence[int]) -> Sequence[int]:
    flat = ids.view(-1)
    values = marks(setting, name)
    if not values:
        return ()
    at = torch.arange(places.start, places.stop) if isinstance(places, range) else torch.tensor(places)
    at = at.to(flat.device)
    rules = [rule for rule in _rules(setting, name) if _holds(setting, name, ids, rule)]
    values = [n for n in values if all(_holds(setting, name, _with(ids, at, n), rule) for rule in rules)]
    for i, value in enumerate(values):
        flat[at[setting.rng.randrange(i + 1) :: i + 1]] = value  # each marks some, where several can
    return places if values else ()


def hold(setting: Setting, name: str, values: torch.Tensor) -> bool:
    """Say whether all constraints on this tensor that can be computed by now hold for `values`."""
    return all(_holds(setting, name, values, rule) for rule in _rules(setting, name))


def _with(ids: torch.Tensor, at: torch.Tensor, value: int) -> torch.Tensor:
    changed = ids.clone()
    changed.view(-1)[at] = value
    return changed


def _places(setting: Setting, count: int) -> Sequence[int]:
    """Return which of `count` entries are not used: never all of them but in a structure of that name."""
    if setting.structure == "all_padded":
        return range(count)
    if count < 2 or setting.structure in _PLAIN:  # noqa: PLR2004 - another entry has to be used
        return ()
    if setting.structure == "padded_tail":
        return range(count - setting.rng.randint(1, count // 2), count)
    several = min(setting.rng.randint(2, max(2, count // _SHARE)), count - 1, _MOST)
    return setting.rng.sample(range(count), (several, 0, several, 1, 0)[way_of(setting.seed, "unused", 5)])


def _with_a_row(setting: Setting, ids: torch.Tensor) -> Sequence[int]:
    """Return the places of one row among several, as of a token that no expert takes, now and then with some others."""
    if ids.dim() < 2 or ids.numel() < 2 * ids.shape[-1] or not ids.numel():  # noqa: PLR2004 - a row of something
        return ()
    if (
        setting.structure in _PLAIN
        or setting.structure in STRUCTURES
        or way_of(setting.seed, "unused", 5) != _WITH_A_ROW
    ):
        return ()
    width = ids.shape[-1]
    row = setting.rng.randrange(ids.numel() // width)
    others = _places(setting, ids.numel()) if setting.rng.randrange(2) else ()
    return sorted({*range(row * width, (row + 1) * width), *others})


def _named(contract: Contract, name: str) -> list[str]:
    """Return the scalars that say what marks unused entries, such as an `ignore_index` in the description."""
    inputs = contract.definition.inputs
    words = set(re.findall(r"\w+", inputs[name].description or ""))
    return sorted(n for n in words & inputs.keys() if inputs[n].shape is None and re.search("ignore|pad", n))


def _pads(contract: Contract, name: str) -> bool:
    """Say whether a text speaks of entries that are not used, of an input in particular or with its name."""
    sentences = re.split(r"[.;](?:\s|$)", contract.definition.description or "")
    own = [contract.definition.inputs[name].description or "", *(each for each in sentences if name in each)]
    return any(PADS.search(text) for text in own)


def _one_past(setting: Setting, name: str) -> list[int]:
    """Return the number of entries itself, where constraints allow it beside their ids and a text says what for."""
    high, limit = setting.limits(name)[1], setting.limit(name)
    return [limit] if limit and high == limit and _pads(setting.contract, name) else []


def marks(setting: Setting, name: str) -> list[int]:
    """Return what marks unused entries: as the role says, a scalar, a constraint with names, and one with a text."""
    env = _with_scalars(setting, setting.contract.definition.inputs)
    found: list[Any] = [*setting.plan.roles[name].unused, *(env.get(n) for n in _named(setting.contract, name))]
    found += [size(tree, env) for tree in setting.contract.reading.facts.others.get(name, ())]
    found += _one_past(setting, name)
    least, most = setting.ends(name)
    return list(dict.fromkeys(n for n in found if isinstance(n, int) and least <= n <= most))


def _with_scalars(setting: Setting, names: Iterable[str]) -> dict[str, Any]:
    """Return sizes and scalars; those that no case has chosen have their usual value."""
    inputs = setting.contract.definition.inputs
    usual = {
        n: usual_values.usual(setting.contract, n, setting.env)
        for n in names
        if n in inputs and inputs[n].shape is None
    }
    return {**usual, **{n: value for n, value in setting.env.items() if value is not None}}


def _rules(setting: Setting, name: str) -> list[Rule]:
    return [rule for rule in setting.contract.reading.data if name in rule.names]


def _holds(setting: Setting, name: str, values: torch.Tensor, rule: Rule) -> bool:
    stored = values.to("cpu", torch_dtype(setting.contract.dtype(name)))
    try:
        return rule.holds({**_with_scalars(setting, rule.names), **setting.given, name: stored})
    except ConstraintError:
        return True  # it reads what is not made yet
