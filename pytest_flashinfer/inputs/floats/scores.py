"""Families that are about the scores of queries against keys: all far below zero, or rising along many keys."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.source import BrokenSource, parse_python
from pytest_flashinfer.inputs.constraints.equation import size
from pytest_flashinfer.inputs.constraints.trees import constant, names_of
from pytest_flashinfer.inputs.dtypes import is_float, largest
from pytest_flashinfer.inputs.roles.float_roles import DATA, FREE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.sizes.grid import Grid

FAMILIES: Final = frozenset({"opposed", "far_below", "rising", "sunken", "deep"})
_QUERY: Final = re.compile(r"q(_|$)|quer(y|ies)", re.IGNORECASE)
_SCORES: Final = re.compile(
    r"logits|scores?$|(cum|acc|sum)\w*_log_?probs?$|lse|^s(_\w)?$|energ|(^|_)(gating|router)(_out(put)?)?$|gate_out(put)?$"
)
_EXPONENTIALS: Final = re.compile(r"softmax|logsumexp|\bexp2?\(", re.IGNORECASE)
_CHOSEN: Final = re.compile(
    r"top_?k|sort|argmax|softmax|logsumexp|cross_entropy|max_pool|(?<!abs\(\))\.(a|cum)?max\((?!\))", re.IGNORECASE
)
_SQUASHED: Final = re.compile(r"sigmoid|tanh")  # of all that is far below zero these are alike
_FARTHER: Final = 256  # a factor with which scores lie below -1e4, and many below what 16 bits hold
_LOW: Final = (1e3, 1e7)  # magnitudes of what may stand for a masked score, above which other scores have to be
_RISE: Final = 32.0  # of all elements of a key along each axis: a score is the sum of many
_MANY: Final = 300  # keys: several blocks


def left_out(contract: Contract, plan: Plan) -> frozenset[str]:
    """Return the families of scores that say nothing for this definition, or that it forbids."""
    reference = contract.definition.reference or ""
    if _queries(plan):
        return frozenset({"sunken", "deep"} | ({"far_below"} if _masks_low(reference) else set()))
    deep = {"deep"} if _may_be_deep(contract, plan) else set()
    if not _EXPONENTIALS.search(reference):
        return FAMILIES - deep
    sunken = {"sunken"} if inputs(plan) else set()
    return FAMILIES - {"rising"} - sunken - deep  # a softmax of what rises tells something


def _may_be_deep(contract: Contract, plan: Plan) -> bool:
    """Whether there are scores, of which some are chosen or weighed, and nothing that would be below all of them."""
    reference = contract.definition.reference or ""
    data = {name for name in inputs(plan) if plan.roles[name].kind in DATA}
    named = any(_SCORES.search(name) for name in data)
    alone = data == {name for name in plan.roles if is_float(contract.dtype(name))}
    told = _CHOSEN.search(reference) or (named and _EXPONENTIALS.search(reference))
    low = _SQUASHED.search(reference) or _masks_low(reference.replace("finfo", ""))
    return bool(data and (named or alone) and told and not low)


def inputs(plan: Plan) -> set[str]:
    """Return the inputs that are scores themselves, by their names, or the only input that is free."""
    free = {name for name, role in plan.roles.items() if role.kind in FREE}
    return {name for name in free if _SCORES.search(name)} or (free if len(free) == 1 else set())


def may_be_masked(contract: Contract, name: str) -> bool:
    """Whether an input may be scores of which -inf hides some: by its name, or as it comes to exponentials."""
    exponentials = _EXPONENTIALS.search(contract.definition.reference or "")
    return exponentials is not None or _SCORES.search(name) is not None


def _queries(plan: Plan) -> list[str]:
    return [name for name, role in plan.roles.items() if role.kind in FREE and _QUERY.match(name)]


def _masks_low(reference: str) -> bool:
    """Whether a number may stand for masked scores that is no less than far scores: -1e4, or the least of 16 bits."""
    tree = parse_python(reference)
    if isinstance(tree, BrokenSource) or re.search(r"finfo\((?!torch\.float32\))", reference):
        return True
    numbers = (constant(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.UnaryOp))
    return any(_LOW[0] <= abs(n) <= _LOW[1] for n in numbers if isinstance(n, float) or (isinstance(n, int) and n < 0))


def suit(x: torch.Tensor, name: str, family: str) -> None:
    """Have what a family of scores filled `x` with be opposed to queries, or rise, where it is none of these itself."""
    wide, query = x if x.dtype == torch.float64 else x.float(), _QUERY.match(name) is not None
    if family == "rising" and query:
        wide.clamp_(-0.5, 0.5).add_(0.5)
    elif family == "rising":
        for axis, count in enumerate(x.shape[:-1]):
            wide += torch.linspace(0, _RISE, count, device=x.device).view(-1, *[1] * (x.dim() - 1 - axis))
    elif query:
        wide.neg_().mul_(_FARTHER if family == "far_below" else 1)
    x.copy_(wide.clamp_(-largest(x.dtype), largest(x.dtype)))


def rising_cases(grid: Grid) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Yield a case of rising scores with many keys for each free axis of theirs, all else as small as can be."""
    every = _queries(grid.plan)
    if "rising" not in grid.families or not every:
        return
    others = frozenset().union(*(names_of(tree) for name in every for tree in grid.contract.dims[name] or ()))
    page = size(grid.plan.page_size, {**grid.contract.constants, **grid.base}) or 1
    pages = -(-_MANY // page)
    for name in grid.contract.free:
        if name not in others | grid.pools | grid.counts:
            count = pages if grid.totals.get(name) == "pages" else _MANY
            yield {**grid.ones, **dict.fromkeys(grid.pools, pages + 1), name: count}, {"family": "rising"}
