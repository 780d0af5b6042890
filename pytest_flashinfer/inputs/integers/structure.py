"""Index tensors as a whole: named structures, and tensors of integers that agree with each other and the axes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs import unread_rows
from pytest_flashinfer.inputs.constraints.joint_lengths import never_outnumber, tell_lengths
from pytest_flashinfer.inputs.dtypes import as_numbers, storage_shape, torch_dtype
from pytest_flashinfer.inputs.errors import AxisConflict
from pytest_flashinfer.inputs.integers import (
    compared_ids,
    experts,
    indices,
    overwritten_slots,
    page_tables,
    trees_of_nodes,
    unused,
)
from pytest_flashinfer.inputs.integers.row_values import OF_ROWS
from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting, draw_sequences
from pytest_flashinfer.inputs.integers.similar_ids import are_few, ids_alike
from pytest_flashinfer.inputs.integers.slots import slots
from pytest_flashinfer.inputs.roles.packed_integers import BYTE_KINDS, content_bytes
from pytest_flashinfer.inputs.scalars.longest import longest_scalars
from pytest_flashinfer.inputs.scalars.top_k import top_k

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.recipe import Recipe

_RAGGED: Final = ("mixed", "uniform", "single", "one_long", "empty")
_IDS: Final = frozenset({"page_ids", "page_table", "slots"})
_OF_KINDS: Final = {"mask": ("uniform", "blank"), "bits": ("uniform", "blank"), "token_ids": ("few_ids",)}
_OF_QUERIES: Final = ("q_equals_kv", "no_kv", "q_longer")
_WIDE: Final = 4  # bytes, for which hardly a tensor has too many entries to name
# Those of any definition, the plainest first.
STRUCTURES: Final = tuple(dict.fromkeys((
    *_RAGGED, *itertools.chain.from_iterable(_OF_KINDS.values()), "identity", *unused.STRUCTURES, "full_last_page",
    "one_token_page", "shared", "stale_big", "stale_nan", *_OF_QUERIES,
)))  # fmt: skip
_ROWS: Final = frozenset({"sparse", "expert_ids", "packed_experts", "counts"})


def structures(contract: Contract, plan: Plan) -> tuple[str, ...]:
    """Return the structures that differ for this definition, the plainest first; always at least `mixed`."""
    kinds = {role.kind for role in plan.roles.values()}
    names = dict.fromkeys(_RAGGED if plan.pointers or plan.lengths or kinds & _ROWS else ("mixed",))
    for kind, own in _OF_KINDS.items():
        names.update(dict.fromkeys(own if kind in kinds else ()))
    if kinds & _IDS:
        names["identity"] = None
    if unused.occurs(contract, plan):
        names.update(dict.fromkeys(unused.STRUCTURES))
    if plan.last_page or (plan.pages and plan.lengths):
        names["full_last_page"] = None
    if plan.last_page:
        names["one_token_page"] = None
    if plan.pages and plan.shared:
        names["shared"] = None
    if plan.caches:
        names["stale_big"] = None
        names.update({"stale_nan": None} if plan.promises.loose else {})
    if (
        unread_rows.tables(contract, plan)
        or unread_rows.padded(contract, plan)
        or overwritten_slots.pools(contract, plan)
    ):
        names["stale_nan"] = None
    query, keys = plan.pointer("q", "plain"), plan.pointer("kv") or (plan.lengths and plan.pages)
    if query is not None and keys:
        names.update(dict.fromkeys(("q_equals_kv",) if never_outnumber(contract) else _OF_QUERIES))
    return tuple(names)


def index_tensors(setting: Setting, names: list[str], device: torch.device) -> dict[str, torch.Tensor]:
    """Return the integer and bool inputs of `names` on `device`, in their declared dtypes.

    `setting.env` gains the integer scalars that say how long the longest sequence is. Raises AxisConflict.
    """
    found = draw_sequences(setting)
    tell_lengths(setting, found)
    tensors: dict[str, torch.Tensor] = {}
    known = dict(setting.given)
    for name in _in_order(setting.plan, names):
        own = replace(setting, rng=Random(f"{setting.seed}/{name}"), given=known)  # noqa: S311 - not for secrets
        values = _make(own, name, found, device)
        tensors[name] = _stored(own, name, values).to(device).contiguous()
        known = {**known, name: as_numbers(tensors[name])}
    compared_ids.agree(setting, tensors)
    trees_of_nodes.agree(setting, tensors)
    longest_scalars(setting, found, tensors)
    return tensors


def _stored(setting: Setting, name: str, values: torch.Tensor) -> torch.Tensor:
    """Return values in the declared dtype. Raises AxisConflict where a narrow one has not all of them."""
    dtype = torch_dtype(setting.contract.dtype(name))
    stored = values if values.dtype == dtype else values.to(dtype)
    if stored is not values and dtype.itemsize < _WIDE and not torch.equal(stored.to(values.dtype), values):
        low, high = (int(n) for n in values.aminmax())
        raise AxisConflict(f"{name} is {setting.contract.dtype(name)}", f"values from {low} to {high}")
    return stored


def _in_order(plan: Plan, names: list[str]) -> list[str]:
    """Put what others are drawn from first: rows of a batch before the positions in them, ends before starts."""
    first = {"indptr": 0, "last_page_len": 1, "seq_lens": 1, "batch_ids": 2, "starts": 4}
    return sorted(names, key=lambda name: first.get(plan.roles[name].kind, 3))


def _make(setting: Setting, name: str, found: Sequences, device: torch.device) -> torch.Tensor:
    kind = setting.plan.roles[name].kind
    if kind in _OF_LENGTHS:
        return _OF_LENGTHS[kind](setting, name, found)
    if kind in OF_ROWS:
        return OF_ROWS[kind](setting, name, found, device)
    if kind in {"sparse", "mask"}:
        return _mask(setting, name, device) if kind == "mask" else indices.sparse(setting, name, device)
    if kind in {"expert_ids", "packed_experts"}:
        return _experts(setting, name, kind, device)
    return _plain(setting, name, kind, device)


def _experts(setting: Setting, name: str, kind: str, device: torch.device) -> torch.Tensor:
    """Return experts: of those that a range says, else of as many as an axis says, else of twice as many as choices."""
    limit = setting.limit(name)
    shape = setting.shape(name)
    low, high = setting.limits(name) if kind == "expert_ids" else (None, None)
    limit = limit if high is None else high + 1
    if len(shape) < 2:  # noqa: PLR2004 - one expert a row
        return indices.uniform_ids(setting, name, limit, device)
    first = max(0, low or 0)
    ids = experts.experts(setting, name, device, (limit if limit is not None else 2 * shape[-1]) - first) + first
    if kind == "packed_experts":
        return experts.packed_experts(ids, setting, name)
    unused.mark(setting, name, ids)
    return ids


def _pointers(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    ends = torch.tensor([0, *found.segments[name]], dtype=torch.int64).cumsum(0)
    for pointer in (each for each in setting.plan.pointers if each.name == name):
        if pointer.late:
            ends += setting.rng.choice((0, (setting.size(pointer.total) or 0) - int(ends[-1])))  # its end is the total
        if pointer.ends:
            return ends[1:]
    return ends[: setting.shape(name)[0]]


def _last_page_len(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    last = found.last if found.last is not None else [0] * setting.shape(name)[0]
    return torch.tensor(last, dtype=torch.int64)


def _lengths(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    lengths = found.segments[name] if name in found.segments else found.told[name]
    return torch.tensor(lengths, dtype=torch.int64).view(setting.shape(name))


def _counts(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    return _lengths(setting, name, found) if name in found.segments else indices.counts(setting, name)


def _mask(setting: Setting, name: str, device: torch.device) -> torch.Tensor:
    """Return a mask that leaves something in every row of a matrix, unless the structure is `empty` or `blank`."""
    shape = setting.shape(name)
    generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
    mask = torch.rand(shape, generator=generator, device=device) < (1 if setting.structure == "uniform" else 0.7)
    if len(shape) > 1 and shape[-1] and setting.structure != "empty":
        where = torch.randint(shape[-1], (*shape[:-1], 1), generator=generator, device=device)
        mask.scatter_(-1, where, value=True)
        if setting.structure == "blank":
            mask.view(-1, shape[-1])[::2] = False
    return mask


def _plain(setting: Setting, name: str, kind: str, device: torch.device) -> torch.Tensor:
    shape, limit = setting.shape(name), setting.limit(name)
    if kind == "zeros":
        return torch.zeros(shape, dtype=torch.uint8, device=device)
    generator = torch.Generator(device).manual_seed(setting.rng.getrandbits(48))
    if kind in BYTE_KINDS:
        dtype = setting.contract.dtype(name)
        return content_bytes(kind, storage_shape(shape, dtype), torch_dtype(dtype), generator, *setting.limits(name))
    if kind == "seed":
        return torch.randint(min(1 << 31, setting.ends(name)[1] + 1), shape, generator=generator, device=device)
    draw = ids_alike if kind == "index" and are_few(setting, name) else indices.uniform_ids
    return draw(setting, name, limit, device)


_OF_LENGTHS: Final[dict[str, Callable[[Setting, str, Sequences], torch.Tensor]]] = {
    "indptr": _pointers,
    "last_page_len": _last_page_len,
    "seq_lens": _lengths,
    "page_ids": page_tables.page_ids,
    "page_table": page_tables.page_table,
    "slots": lambda setting, name, _: slots(setting, name),
    "counts": _counts,
    "top_k": lambda setting, name, _: top_k(setting, name),
}


def setting_for(
    contract: Contract, plan: Plan, env: dict[str, Any], recipe: Recipe, given: Mapping[str, torch.Tensor]
) -> Setting:
    """Return what index tensors are drawn from, for one recipe; torch can compare all that is given."""
    given = {name: as_numbers(x) for name, x in given.items()}
    rng = Random(f"{recipe.seed}/lengths")  # noqa: S311 - not for secrets
    return Setting(contract, plan, env, recipe.structure, recipe.seed, rng, given)
