"""Tensors of which constraints say something as a whole: sorted, none twice, a permutation, unlike another one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.inputs.constraints.elements import may_change
from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.limits import limits
from pytest_flashinfer.inputs.constraints.trees import called, constant, demanded
from pytest_flashinfer.inputs.dtypes import as_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_flashinfer.inputs.constraints.facts import Rule
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_LIST: Final = r"(?:\.(?:flatten|reshape|view)\((?:-1)?\))?(?:\.tolist\(\))?"
_UNIQUE: Final = rf"(?:torch\.unique\((\w+)\)|(\w+)\.unique\(\)|set\((\w+){_LIST}\))"
_COUNTED: Final = rf"len\({_UNIQUE}\)|{_UNIQUE}\.(?:numel\(\)|nelement\(\)|size\(0\)|shape\[0\])"
_AXIS: Final = r"(?:dim=)?-1"
_SORTED: Final = (
    rf"(?:torch\.sort\((\w+)(?:, {_AXIS})?\)|(\w+)\.sort\((?:{_AXIS})?\))(?:\.values|\[0\])|sorted\((\w+){_LIST}\)"
)
_SOME: Final = rf"(\w+)\.any\({_AXIS}\)|(\w+)\.sum\({_AXIS}\) (?:>= 1|> 0)"
_ALL: Final = r"(torch\.arange\(|list\(range\()"
_TINY: Final = 2.0**-6  # of the largest value: a step that every dtype of floats can tell


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What has to hold of one tensor.

    `kind` is rising or falling along the last axis, strictly so, distinct (no number twice), permutation, some (of each
    row something is true), or unlike an `other` tensor everywhere.
    """

    kind: str
    name: str
    other: str = ""


@lru_cache(maxsize=64)
def arrangements_of(contract: Contract) -> tuple[tuple[Rule, tuple[Arrangement, ...]], ...]:
    """Return the constraints that say something of whole tensors, with what they say."""
    rules = ((rule, tuple(arrangements(rule.tree))) for rule in contract.reading.data)
    return tuple((rule, found) for rule, found in rules if found)


def arrangements(tree: ast.expr) -> Iterator[Arrangement]:
    """Yield what a condition says of whole tensors."""
    yield from _written(ast.unparse(tree))
    for sides in demanded(tree):
        yield from _compared(*sides)


def _written(text: str) -> Iterator[Arrangement]:
    """Recognise what is said with `unique`, `sort` and `sorted`, whichever side it stands on."""
    bare = re.sub(r"^(?:torch\.all|bool|all)\((.*)\)$", r"\1", text)
    bare = re.sub(r"^\((.*)\)\.all\(\)$|^(.*)\.all\(\)$", r"\1\2", bare)
    if (some := re.fullmatch(_SOME, bare)) is not None:
        yield Arrangement("some", next(filter(None, some.groups())))
    whole = re.fullmatch(r"torch\.equal\((.*)\)", bare)
    cuts = [(whole[1], match) for match in re.finditer(", ", whole[1])] if whole is not None else []
    for full, match in (*cuts, *((bare, match) for match in re.finditer(" == ", bare))):
        sides = full[: match.start()], full[match.end() :]
        for one, other in (sides, sides[::-1]):
            if (counted := re.fullmatch(_COUNTED, one)) is not None:
                yield Arrangement("distinct", next(filter(None, counted.groups())))
            if (ordered := re.fullmatch(_SORTED, one)) is not None:
                name = next(filter(None, ordered.groups()))
                if re.match(_ALL, other):
                    yield Arrangement("permutation", name)
                elif re.fullmatch(rf"{name}{_LIST}", other):
                    yield Arrangement("rising", name)


def _compared(left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> Iterator[Arrangement]:
    """Recognise comparisons of neighbours along the last axis, and of two tensors that are to differ."""
    words = {ast.GtE: "rising", ast.Gt: "strictly rising", ast.LtE: "falling", ast.Lt: "strictly falling"}
    if op is ast.NotEq and isinstance(left, ast.Name) and isinstance(right, ast.Name):
        yield Arrangement("unlike", left.id, right.id)
    word = next((text for kind, text in words.items() if op is kind), "")
    one, other = _part(left), _part(right)
    if word and one is not None and other == (one[0], "head") and one[1] == "tail":
        yield Arrangement(word, one[0])
    step = _differences(left)
    if step is not None and word in {"rising", "strictly rising"} and constant(right) in {0, 1}:
        strict = op is ast.Gt or constant(right) == 1
        yield Arrangement("strictly rising" if strict else "rising", step)


def _part(node: ast.expr) -> tuple[str, str] | None:
    """Say of which tensor an expression is all but the last or the first along the last axis."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
        return None
    entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    *before, last = entries
    if not isinstance(last, ast.Slice) or last.step is not None:
        return None
    if not all(ast.unparse(each) in {":", "..."} for each in before):
        return None
    ends = tuple(None if end is None else constant(end) for end in (last.lower, last.upper))
    which = "tail" if ends == (1, None) else "head" if ends == (None, -1) else None
    return (node.value.id, which) if which else None


def _differences(node: ast.expr) -> str | None:
    """Return the tensor whose neighbours along the last axis an expression subtracts."""
    if not isinstance(node, ast.Call):
        return None
    bare = ast.Call(node.func, node.args, [each for each in node.keywords if constant(each.value) != -1])
    word, inner = called(bare)
    return inner.id if word == "diff" and isinstance(inner, ast.Name) else None


def arrange(contract: Contract, plan: Plan, env: dict[str, Any], names: Collection[str], seed: int) -> set[str]:
    """Put those of the tensors `names` in order, in place, of which a broken condition says how they have to be.

    `env` has all tensors, scalars and sizes. Returns the names of tensors that changed.
    """
    changed = set()
    for rule, found in arrangements_of(contract):
        for wanted in found if rule.fails(env) else ():
            x = env.get(wanted.name)
            kind = plan.roles[wanted.name].kind if wanted.name in plan.roles else ""
            if wanted.name not in names or not isinstance(x, torch.Tensor) or not x.numel() or not x.dim():
                continue
            if may_change(contract, plan, wanted.name) or kind in {"batch_ids", "order"}:
                rng = Random(f"{seed}/{wanted.name}/arranged")  # noqa: S311 - not for secrets
                x.copy_(_arranged(wanted, as_numbers(x), env, _range(contract, plan, wanted.name, env, x), rng))
                changed.add(wanted.name)
    return changed


def _range(contract: Contract, plan: Plan, name: str, env: dict[str, Any], x: torch.Tensor) -> tuple[int, int]:
    """Return the least and the greatest integer that a tensor may hold; what it holds where nothing else is known."""
    if x.dtype is torch.bool:
        return 0, 1
    low, high = limits(contract, name, env)
    limit = size(plan.roles[name].limit, env)
    high = high if limit is None else limit - 1 if high is None else min(high, limit - 1)
    least, most = (int(end) for end in as_numbers(x).aminmax()) if not x.is_floating_point() else (0, 0)
    return min(0, least) if low is None else low, most if high is None else high


def _arranged(
    wanted: Arrangement, x: torch.Tensor, env: dict[str, Any], ends: tuple[int, int], rng: Random
) -> torch.Tensor:  # fmt: skip
    generator = torch.Generator(x.device).manual_seed(rng.getrandbits(48))
    kind, strict = wanted.kind.removeprefix("strictly "), wanted.kind.startswith("strictly")
    if kind == "permutation":
        return torch.rand(x.shape, generator=generator, device=x.device).argsort(dim=-1).to(x.dtype)
    if kind == "some":
        where = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=x.device)
        return torch.where(x.any(dim=-1, keepdim=True), x, torch.zeros_like(x).scatter_(-1, where, 1))
    if kind == "unlike":
        return _unlike(x, env[wanted.other], ends)
    if kind == "distinct" or (strict and not x.is_floating_point()):
        whole = kind == "distinct"
        x = _distinct(x.reshape(1, -1) if whole else x.reshape(-1, x.shape[-1]), ends, generator).view(x.shape)
        if whole:
            return x
    x = x.sort(dim=-1).values
    if strict and x.is_floating_point():
        x = _apart(x)
    return x if kind == "rising" else x.flip(-1)


def _unlike(x: torch.Tensor, other: Any, ends: tuple[int, int]) -> torch.Tensor:
    """Return numbers of which none equals that of the same place in another tensor, or a number."""
    if isinstance(other, torch.Tensor) and other.dim() and other.shape != x.shape:
        return x
    known = as_numbers(other) if isinstance(other, torch.Tensor) else other
    low, high = ends
    return torch.where(x == known, low + (x - low + 1) % max(1, high - low + 1), x)


def _distinct(rows: torch.Tensor, ends: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Return rows of numbers of which none is twice, in any order; `rows` themselves where there are not enough."""
    low, width = ends[0], rows.shape[1]
    spare = ends[1] - low + 1 - width
    if spare < 0:
        return rows
    drawn = torch.randint(spare + 1, rows.shape, generator=generator, device=rows.device).sort(dim=1).values
    rising = low + drawn + torch.arange(width, device=rows.device)
    order = torch.rand(rows.shape, generator=generator, device=rows.device).argsort(dim=1)
    return rising.gather(1, order).to(rows.dtype)


def _apart(rows: torch.Tensor) -> torch.Tensor:
    """Return sorted rows of floats with a step between neighbours that their dtype can tell."""
    wide = rows.to(torch.float64)
    step = _TINY * wide.abs().amax(dim=-1, keepdim=True).clamp_min(_TINY)
    gaps = torch.maximum(wide.diff(dim=-1), step.expand_as(wide)[..., 1:] if wide.shape[-1] > 1 else wide.diff(dim=-1))
    return torch.cat([wide[..., :1], wide[..., :1] + gaps.cumsum(dim=-1)], dim=-1).to(rows.dtype)


def crowds(contract: Contract) -> Iterator[tuple[str, bool]]:
    """Yield the tensors whose numbers must differ: in all, or, where that is true, in each row by itself."""
    for _, found in arrangements_of(contract):
        for wanted in found:
            if wanted.kind in {"distinct", "strictly rising", "strictly falling"}:
                yield wanted.name, wanted.kind != "distinct"
