"""Float tensors by role: the families fill what is free, the rest keeps to the range that gives it its meaning."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.dtypes import FLOAT8, largest
from pytest_flashinfer.inputs.floats import families, ranges, scores, ties, unusual
from pytest_flashinfer.inputs.roles.float_roles import FREE, ROTARY
from pytest_flashinfer.inputs.roles.nonfinite import SPEAKS, asked, speaks_of
from pytest_flashinfer.inputs.stale import POISON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.recipe import Recipe

_CHUNK: Final = 1 << 24
_HEATS: Final = (1.0, 2.0, 4.0, 6.0)  # factors of normal logits: of 128,256 ids the likeliest have 0.01 to 60 per cent
_LEAD: Final = (0.7, 0.95)  # of a row's mass that its likeliest id has, in one row of five
_SORTED: Final = 0.125  # of these rows, half of them falling
_LEAST: Final = 2.0**-120  # of probabilities with a logarithm
_AS_THEY_ARE: Final = frozenset({"small_ints", "equal", "uneven"})  # families that a weight has as well, undivided
_SEVERAL: Final = 3  # float inputs, of whose products a first one may be large and a second one not
_OF_SCORES: Final = families.SPECIAL | {"sunken", "deep"}
_ANYWHERE: Final = frozenset({"nan", "inf"})  # what shows that a value reaches others than it should


@dataclass(frozen=True, slots=True)
class Source:
    """The random numbers of one recipe: a generator for each tensor, and one that all tensors' rows share."""

    seed: int
    device: torch.device

    def own(self, name: str) -> torch.Generator:
        """Return a generator that depends on the recipe's seed and the tensor's name alone."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return torch.Generator(self.device).manual_seed(int.from_bytes(digest[:7], "big"))

    def rows(self) -> torch.Generator:
        """Return a generator in the same state for every tensor."""
        return self.own("//rows")

    def table(self) -> Random:
        """Return a generator on the host, in the same state for every tensor: cosines and sines are of one table."""
        return Random(f"{self.seed}//table")  # noqa: S311 - not for secrets


def family_names(contract: Contract, plan: Plan) -> tuple[str, ...]:
    """Return the families that differ for this definition, the plainest first; always at least `normal`.

    Values that are not finite are among them only where the contract speaks of them, and an input may hold them.
    """
    kinds = {role.kind for role in plan.roles.values()}
    if not kinds & FREE:
        return ("normal", "outliers") if kinds & unusual.KINDS else ("normal",)
    spoken = {name for name in families.SPECIAL if _holding(name, contract, plan)}
    spoken |= _ANYWHERE if plan.promises.contained else set()
    left_out = (families.SPECIAL - spoken) | scores.left_out(contract, plan)
    multiplied = sum(role.kind in FREE or role.kind == "weight" for role in plan.roles.values())
    left_out |= {"uneven"} if multiplied < _SEVERAL else set()
    return tuple(name for name in families.FAMILIES if name not in left_out)


def _spoken(contract: Contract, plan: Plan) -> set[str]:
    """Return the families of which the contract says what comes of them."""
    specs = (*contract.definition.inputs.values(), *contract.definition.outputs.values())
    text = " ".join(filter(None, (contract.definition.description, *(spec.description for spec in specs)))).lower()
    if any(role.kind == "mask" for role in plan.roles.values()):
        text = text.replace("fully masked", "")  # by that mask, and not by scores of -inf
    return {name for name, words in SPEAKS.items() if words.search(text) and scores.inputs(plan)}


def _holding(family: str, contract: Contract, plan: Plan) -> set[str]:
    """Return the inputs that hold values of a family which are not finite, as words or the reference say.

    Scores may be masked by -inf, and then are asked for nothing else.
    """
    kinds = FREE | {"weight"} if family in _ANYWHERE else FREE
    found = {name for name in asked(contract).get(family, ()) if name in plan.roles and plan.roles[name].kind in kinds}
    if family != "neginf":
        found = {name for name in found if not scores.may_be_masked(contract, name)}
    return found | (_told_of(family, contract, plan, kinds) if family in _spoken(contract, plan) else set())


def _told_of(family: str, contract: Contract, plan: Plan, kinds: frozenset[str]) -> set[str]:
    """Return the inputs whose own descriptions name such values; where none does, scores that are not said finite."""
    own = {name for name, role in plan.roles.items() if role.kind in kinds and speaks_of(family, contract, name)}
    return own or {name for name in scores.inputs(plan) if speaks_of(family, contract, name) is None}


def shows_leaks(contract: Contract, plan: Plan, recipe: Recipe) -> bool:
    """Say whether values that are not finite are there only to show where they must not get to.

    Of an element that the reference has NaN for they tell nothing: what visible ones lead to, no contract says.
    """
    by_family = recipe.family in _ANYWHERE and plan.promises.contained and recipe.family not in _spoken(contract, plan)
    return by_family or recipe.structure in POISON or (recipe.family == "neginf" and plan.promises.loose)


def family_of(name: str, family: str, contract: Contract, plan: Plan) -> str:
    """Return the family that fills an input: those that are about scores alone leave the others as they usually are.

    So do families of equal values scores of which some are chosen, where the answer depends on which of equal ones.
    """
    if family in ties.FAMILIES and ties.matter(contract, plan, name):
        return "normal"
    if family not in _OF_SCORES or (plan.promises.contained and family in _ANYWHERE):
        return family
    holding = _holding(family, contract, plan) if family in families.SPECIAL else set()
    return family if name in (holding or scores.inputs(plan)) else "normal"


@dataclass(frozen=True, slots=True)
class Want:
    """A tensor to make: `kind` is its role, `fan_in` how many products of it are summed, where it is a weight.

    `base` is that of a rotary table, where the contract tells it; `powers` says that all are powers of two.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    fan_in: int | None = None
    base: float | None = None
    powers: bool = False


def float_tensor(want: Want, family: str, source: Source) -> torch.Tensor:
    """Return one contiguous float input on the source's device."""
    name, kind, torch_type = want.name, want.kind, want.dtype
    x = torch.empty(want.shape, dtype=torch_type, device=source.device)
    if x.numel() == 0:
        return x
    if kind in FREE or (kind == "weight" and family in _ANYWHERE):
        _free(x, kind, family, source, name)
    elif kind == "weight":
        same = family in _AS_THEY_ARE
        families.fill(x, family if same else "normal", source.own(name), source.rows())
        if torch_type in FLOAT8 and family == "large":  # quantised blocks reach the largest value
            most = largest(torch_type)
            x.copy_((x.to(torch.float32) * (most / 4)).clamp_(-most, most))
        if not same and torch_type not in FLOAT8:
            x.div_(math.sqrt(max(1, want.fan_in or 1)))
            unusual.enlarge_rows(x, family, source.own(f"{name}/unusual"))
        unusual.empty_rows(x, family, source.own(f"{name}/empty"))
    else:
        wide = x if torch_type not in FLOAT8 else torch.empty(want.shape, dtype=torch.float32, device=source.device)
        if kind in ROTARY:
            ranges.rotary(wide, kind, want.base, source.table())
        else:
            ranges.FILLS[kind](wide, source.own(name))
        _suited(wide, want, family, source)
        if kind == "weight_scale" and torch_type not in FLOAT8:
            wide.div_(math.sqrt(max(1, want.fan_in or 1)))
        if wide is not x:
            x.copy_(wide.clamp_(-largest(torch_type), largest(torch_type)))
    return ranges.as_powers(x) if want.powers else x


def _suited(x: torch.Tensor, want: Want, family: str, source: Source) -> None:
    """Have a range give way to what a family is for, and to what is unusual."""
    if want.kind == "bias":
        _biased(x, family)
    unusual.widen(x, want.kind, family, source.own(f"{want.name}/unusual"))


def _biased(x: torch.Tensor, family: str) -> None:
    """Have a bias keep what a family is for: values all below zero, or ties."""
    if family == "negative":
        x.abs_().add_(1).neg_()
    elif family in {"ties", "small_ints", "constant_rows", "zero_rows"}:
        x.mul_(2).round_().mul_(0.5)


def _parts(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a matrix in blocks of rows, small enough to be made in float32."""
    step = max(1, _CHUNK // flat.shape[1])
    for start in range(0, flat.shape[0], step):
        yield flat[start : start + step]


def _free(x: torch.Tensor, kind: str, family: str, source: Source, name: str) -> None:
    if kind in {"probs", "log_probs"}:
        _probabilities(x, family, source, name, logarithms=kind == "log_probs")
        return
    families.fill(x, family, source.own(name), source.rows())
    if kind == "logits" and family == "normal":
        for part in _parts(x.view(-1, x.shape[-1])):
            part.copy_(_heated(part.float(), source.own(f"{name}/heat")))
    if family in scores.FAMILIES:
        scores.suit(x, name, family)
    if kind == "unit" and x.dim():
        flat = x.view(-1, x.shape[-1])
        for part in _parts(flat):
            wide = part.to(torch.float32)
            part.copy_(wide / wide.norm(dim=-1, keepdim=True).clamp_min(1e-6))


def _probabilities(x: torch.Tensor, family: str, source: Source, name: str, *, logarithms: bool) -> None:
    """Fill rows that are >= 0 and sum to 1: near uniform, one-hot, with exact zeros, with ties, or at some heat.

    Or with the logarithms of such; that of 0 is one of a very small number.
    """
    flat = x.view(-1, x.shape[-1])
    own, rows = source.own(name), source.rows()
    for part in _parts(flat):
        wide = torch.empty(part.shape, dtype=torch.float32, device=x.device)
        families.fill(wide, family if family not in _OF_SCORES else "normal", own, rows)
        if family == "sparse":
            p = wide.abs_()
            p[:, :1] += p.sum(dim=1, keepdim=True).eq_(0)
            p /= p.sum(dim=1, keepdim=True)
        elif family in {"ties", "small_ints", "peaks", "constant_rows", "masked"}:
            p = wide.softmax(dim=1)
        else:
            p = _heated(wide - wide.amax(dim=1, keepdim=True), own).softmax(dim=1)
        part.copy_(p.clamp_(_LEAST, 1).log_() if logarithms else p)


def _heated(logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply each row [rows, n] by some factor, in place, or have its likeliest id lead the others by far; sort some.

    A model's rows go from many ids that are alike to a few that have all; what a sampler does wrong shows in some.
    """
    heat = torch.tensor((*_HEATS, 1.0), device=logits.device)
    chosen = torch.randint(len(heat), (len(logits), 1), device=logits.device, generator=generator)
    logits.mul_(heat[chosen])
    share = torch.empty(chosen.shape, dtype=logits.dtype, device=logits.device).uniform_(*_LEAD, generator=generator)
    top = logits.argmax(dim=1, keepdim=True)
    others = logits.scatter(1, top, -math.inf).logsumexp(dim=1, keepdim=True)
    leads = (chosen == len(_HEATS)) & others.isfinite()
    logits.scatter_(1, top, torch.where(leads, others + share.logit(), logits.gather(1, top)))
    kinds = torch.rand(len(logits), device=logits.device, generator=generator)
    for rows, falling in ((kinds < _SORTED / 2, False), (kinds > 1 - _SORTED / 2, True)):
        logits[rows] = logits[rows].sort(dim=1, descending=falling).values
    return logits
