"""One input as recognition sees it: its name, description and shape, and the pools that ids may point into."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.constraints.facts import dimension
from pytest_flashinfer.inputs.constraints.hints import NEGATIVE, Bound
from pytest_flashinfer.inputs.constraints.lists import of_tensors
from pytest_flashinfer.inputs.constraints.trees import as_comparison, both_ways, called, constant, names_of, stripped
from pytest_flashinfer.inputs.dtypes import torch_dtype
from pytest_flashinfer.inputs.roles.descriptions import is_page_size
from pytest_flashinfer.inputs.roles.uses import Use, use

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import TensorSpec
    from pytest_flashinfer.inputs.contract import Contract

# Conventional names, the last resort: what neither constraints nor shapes tell.
NAMES: Final = {
    "page": re.compile(r"(page|block)_?size|tokens_per_(page|block)", re.IGNORECASE),
    "pool": re.compile(r"pages?$|blocks?$|pool|slots?$|cache_(size|len)|capacity|cache_rows", re.IGNORECASE),
    "vocab": re.compile(r"vocab|embeddings$|^V$", re.IGNORECASE),
    "experts": re.compile(r"experts$|^E$"),
    "cache": re.compile(r"cache|pool|buffer|kv_data|paged|state", re.IGNORECASE),
    "query": re.compile(r"(^|_)(q|qo|query|queries)(_|$)|(^|_)q(o)?_?(len|indptr|seq)", re.IGNORECASE),
    "keys": re.compile(r"(^|_)(kv|k|key|keys|v|ctx|context|cache)(_|$)|paged", re.IGNORECASE),
    "pointer": re.compile(r"indptr|cu_?seq_?len|cum|row_splits", re.IGNORECASE),
    "longest": re.compile(r"max_.*(len|seq)|(len|seq).*max", re.IGNORECASE),
    "layers": re.compile(r"layers?$", re.IGNORECASE),
    "recurrent": re.compile(r"gdn|gdp|delta|kda|linear_att|mamba|ssu|ssm|selective", re.IGNORECASE),
}


_NEGATIVE: Final = re.compile(r"(?<![\w)\]])-\d+\b(?!\.\d)")
_BEGINS: Final = re.compile(r"(between|from|least|minimum|range|times|by|[<>*]=?|[≤≥])\s*[\[(]?\s*$")
_UNUSED_ONES: Final = r"(an? |the )?(padd(ing|ed)|unused|ignored|skipped|dropped)\b"
# Said of the entries themselves: a logit that is negative, or a sample, is none of an id.
_NEGATIVE_ONES: Final = re.compile(
    r"(?<!non-)(?<!non)(?<!no )(?<!not )(?<!never )(?<!is )(?<!are )\bnegative"
    r"( (index|indices|ids?|entr(y|ies)|slots?|rows?|values?|numbers?|ones?)( of \w+)?)?,? "
    rf"(for|marks?|means?|denotes?|is|are|=) {_UNUSED_ONES}|"
    rf"\bbelow (0|zero),? (for|marks?|means?|denotes?|is|are) {_UNUSED_ONES}"
)
_FORBIDS: Final = re.compile(r"\b(must|may|can|cannot|never|nothing|none|not)\b[^;]*\b(negative|below)\b")
_SENTENCE: Final = re.compile(r"\.(?:\s|$)")
# Words for entries that are not used.
PADS: Final = re.compile(
    r"\b(pad\w*|unused|invalid|sentinel|dropp\w*|skip\w*|no (row|token|slot|entry))\b", re.IGNORECASE
)
_ENDS: Final = re.compile(r"\s*(,[^,()\[\]]+[)\]]|to\b|through\b|\.\.|…)")


@dataclass(frozen=True, slots=True)
class Role:
    """What a tensor holds.

    `limit` is the size that its integers stay below, `axis` the one that a total is tied to, or that windows lie in.
    """

    kind: str
    limit: ast.expr | None = None
    axis: ast.expr | None = None
    group: str = "plain"  # of pointers and lengths: "q", "kv" or "plain"; "all" are in one order
    unused: tuple[int, ...] = ()  # what marks entries that are not used
    distinct: bool = False  # no two others are alike, as the description says, whatever the sizes
    base: float | None = None  # of a rotary table's frequencies, where the contract tells it
    number: bool = False  # it is only computed with: any integer will do


@dataclass(frozen=True, slots=True)
class Subject:
    """One input, with the contract that it belongs to."""

    contract: Contract
    name: str
    spec: TensorSpec
    dims: tuple[ast.expr, ...]

    @property
    def text(self) -> str:
        """The input's own description, in lower case."""
        return (self.spec.description or "").lower()

    def named(self, pattern: str) -> bool:
        """Whether the input's name matches."""
        return re.search(pattern, self.name, re.IGNORECASE) is not None

    def told(self, pattern: str) -> bool:
        """Whether the input's description matches."""
        return re.search(pattern, self.text) is not None

    def axis(self, index: int) -> str:
        """Return the name of an axis, or its expression as text."""
        return ast.unparse(self.dims[index])

    @property
    def use(self) -> Use:
        """What the reference does with its values."""
        return use(self.contract.definition, self.name)

    @property
    def upper(self) -> tuple[ast.expr, ...]:
        """The greatest values that constraints or the description allow."""
        return tuple(self.contract.reading.facts.bounds.get(self.name, Bound()).upper)

    @property
    def unused(self) -> tuple[int, ...]:
        """What marks entries that are not used, -1 first: what a constraint allows besides a range, or the description.

        A negative number in words counts unless it is the end of a range or an axis; only -1 may begin a range. Where
        a text says that negative entries are padding, several of these are.
        """
        facts = self.contract.reading.facts
        stated = [constant(tree) for tree in facts.others.get(self.name, ())]
        least = [constant(tree) for tree in facts.bounds.get(self.name, Bound()).lower]
        named = {-1 for n in least if n == -1}
        if not self.told(r"(dim|axis|dimension)\s*=?\s*-\d"):
            for match in _NEGATIVE.finditer(self.text):
                before, after = self.text[: match.start()], self.text[match.end() :]
                if match[0] == "-1" or not (_BEGINS.search(before) or _ENDS.match(after)):
                    named.add(int(match[0]))
        found = named | {n for n in stated if isinstance(n, int) and not (named and n in NEGATIVE)}
        found |= set(NEGATIVE) if not named and any(map(_says_negative, self._sentences())) else set()
        ends = torch.iinfo(torch_dtype(self.contract.dtype(self.name)))
        return tuple(sorted((n for n in found if ends.min <= n <= ends.max), reverse=True))

    def _sentences(self) -> list[str]:
        """Return the own description's sentences, and those of the definition's that name this input."""
        whole = (self.contract.definition.description or "").lower()
        named = re.compile(rf"\b{re.escape(self.name.lower())}\b")
        return [*_SENTENCE.split(self.text), *filter(named.search, _SENTENCE.split(whole))]


def _says_negative(sentence: str) -> bool:
    return _NEGATIVE_ONES.search(sentence) is not None and _FORBIDS.search(sentence) is None


def counts_slots(contract: Contract, axis: str) -> bool:
    """Whether an axis says how many slots a page has, by its name or its description."""
    return NAMES["page"].search(axis) is not None or is_page_size(contract.definition, axis)


def find_axis(contract: Contract, what: str) -> ast.expr | None:
    """Return the first axis whose name says `what`, inputs' axes first."""
    names = [*contract.constants, *contract.axis_names]
    found = [n for n in names if (counts_slots(contract, n) if what == "page" else NAMES[what].search(n))]
    found.sort(key=lambda name: (name not in contract.input_axes, "local" in name))
    return ast.Name(found[0]) if found else None


def pools(contract: Contract) -> dict[str, list[str]]:
    """Return the axes that ids may point into, with the tensors that they lead: caches and state pools.

    A pool is the leading axis, or the one after that of layers: the same ids then point into each layer.
    """
    found: dict[str, list[str]] = {}
    for name, dims in contract.dims.items():
        layers = bool(dims) and NAMES["layers"].search(ast.unparse((dims or ())[0])) is not None
        rest = (dims or ())[layers:]
        if len(rest) < 2 or not isinstance(rest[0], ast.Name):  # noqa: PLR2004 - a row of something
            continue
        axis = rest[0].id
        shared = sum(1 for d in contract.dims.values() if d and isinstance(d[0], ast.Name) and d[0].id == axis)
        sure = NAMES["pool"].search(axis)
        mine = sure or (NAMES["cache"].search(name) and shared <= 2 and not layers)  # noqa: PLR2004 - K and V
        counts = re.search(r"batch|seqs|tokens$", axis) or ("total" in axis and not sure)
        if mine and axis not in contract.derived and not counts:
            found.setdefault(axis, []).append(name)
    return found


def page_size(contract: Contract, pool: str) -> ast.expr | None:
    """Return the axis that counts the slots of a page in the tensors led by `pool`, or `None`."""
    for name in pools(contract).get(pool, ()):
        for tree in (contract.dims[name] or ())[1:]:
            if counts_slots(contract, ast.unparse(tree)):
                return tree
    return None


def pool_of(subject: Subject, *, state: bool = False) -> str | None:
    """Return the pool that an index points into: one that it mentions, else the first that fits."""
    found = pools(subject.contract)
    ranked = sorted(found, key=lambda axis: _pool_rank(subject, axis, found[axis], state=state))
    return ranked[0] if ranked else None


def _pool_rank(subject: Subject, axis: str, tensors: list[str], *, state: bool) -> tuple[bool, bool, bool]:
    mentioned = any(name.lower() in subject.text or name in subject.name for name in (axis, *tensors))
    looks = any(re.search("state", name, re.IGNORECASE) for name in (axis, *tensors)) == state
    return (not mentioned, not looks, not (re.search("page|block", axis) is not None) ^ state)


def slots_of(contract: Contract, pool: str) -> ast.expr:
    """Return the number of slots in a pool: pages times the size of a page."""
    size = page_size(contract, pool)
    return ast.Name(pool) if size is None else ast.BinOp(ast.Name(pool), ast.Mult(), size)


def _end(upper: ast.expr) -> ast.Name | None:
    """Return `n` where the greatest value is `n - 1`."""
    less = isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Sub) and constant(upper.right) == 1
    return upper.left if less and isinstance(upper, ast.BinOp) and isinstance(upper.left, ast.Name) else None


def _ranked(s: Subject) -> bool:
    """Whether a constraint says which numbers occur, as `x[x >= 0].sort().values == torch.arange(n)` does."""
    trees = (of_tensors(rule.tree) for rule in s.contract.reading.data if s.name in rule.names)
    for tree in (as_comparison(stripped(tree)) for tree in trees):
        for left, op, right in both_ways(tree) if isinstance(tree, ast.Compare) else ():
            words = {called(node)[0] for node in ast.walk(left) if isinstance(node, ast.Call)}
            if op is ast.Eq and words & {"sort", "unique"} and s.name in names_of(left) - names_of(right):
                return "numel" not in words
    return False


def index_limit(s: Subject) -> ast.expr | None:
    """Return the axis of a tensor that plain indices could point into.

    That of a tensor whose rows the reference looks up by them, another axis along which it does so, as that of classes
    in a cross entropy, or what a stated range ends before. Without a range: one that their description names, or whose
    tensor it names; one that they do not have themselves, rather one that no output has either, for those are of what
    is worked on and not of what is looked up. `None` where another range is stated, and where the reference only
    computes with the values: then nothing can be out of reach.
    """
    tables = [dims for name in sorted(s.use.tables) if (dims := s.contract.dims.get(name))]
    if tables:
        return tables[0][0]
    if s.use.sizes:
        return dimension(next(iter(s.use.sizes)))
    if s.upper:
        return next(filter(None, map(_end, s.upper)), None)
    if (s.use.known and not s.use.limits) or _ranked(s):
        return None
    own = {ast.unparse(tree) for tree in s.dims}
    words = set(re.findall(r"\w+", s.text))
    shown = {ast.unparse(trees[0]) for trees in s.contract.output_dims.values() if trees}
    leading = [(name, dims[0]) for name, dims in s.contract.dims.items() if dims and len(dims) > 1 and name != s.name]

    def rank(found: tuple[str, ast.expr]) -> int:
        name, axis = found[0], ast.unparse(found[1])
        if axis.lower() in words and axis not in own:
            return 0
        if name.lower() in words:
            return 1
        return 4 if axis in own else 3 if axis in shown or axis in s.contract.constants else 2

    best = min(leading, key=rank, default=None)
    return best[1] if best is not None and rank(best) < 4 else None  # noqa: PLR2004 - none is left but their own
